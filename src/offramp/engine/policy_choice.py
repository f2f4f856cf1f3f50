"""Which policy a model runs under."""

from __future__ import annotations

import json
from pathlib import Path

from offramp.errors import OfframpError, one_line
from offramp.models import MultiExitModel
from offramp.policies import Fixed, Policy, policy_from_json, policy_from_text

POLICY = "policy.json"


def policy_for(model: MultiExitModel, asked: Policy | str | None) -> Policy:
    """The policy asked for, or the folder's own, or full depth; refused where the model cannot run under it."""
    if isinstance(asked, Policy):
        policy = asked
    elif isinstance(asked, str):
        policy = policy_from_text(asked)
    elif asked is not None:
        raise OfframpError(f"policy {asked!r}: give a policy, or one as text such as 'entropy(0.1)'")
    else:
        own = folder_policy(Path(model.name_or_path)) if model.name_or_path else None
        policy = own or Fixed(model.exits.layers[-1])
    policy.check(model.objective.name, model.exits.layers)
    return policy


def folder_policy(folder: Path) -> Policy | None:
    """The policy that was calibrated for a model, if there is one in its folder."""
    path = folder / POLICY
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return policy_from_json(data["policy"] if isinstance(data.get("policy"), dict) else data)
    except (ValueError, AttributeError) as error:
        raise OfframpError(f"{path} holds no policy ({one_line(error)})") from error
