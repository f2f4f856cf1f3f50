"""Which policy a model runs under."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

from offramp.errors import OfframpError, one_line
from offramp.models import MultiExitModel
from offramp.policies import Fixed, Policy, policy_from_json, policy_from_text
from offramp.typed_json import read_object

log = logging.getLogger("offramp")

POLICY = "policy.json"
UNTRAINED = "%s: the exits after layers %s were never trained: what they answer is random; train the model first"
GATE_THRESHOLD = "gate_threshold"
"""The key in it of what the gates' logits must be at least, where that was calibrated, too."""


def policy_for(model: MultiExitModel, asked: Policy | str | None) -> Policy:
    """The policy asked for, or the folder's own, or full depth; refused where the model cannot run under it.

    With the folder's own, the model's gates take on the threshold that it was calibrated with.
    """
    if isinstance(asked, Policy):
        policy = asked
    elif isinstance(asked, str):
        policy = policy_from_text(asked)
    elif asked is not None:
        raise OfframpError(f"policy {asked!r}: give a policy, or one as text such as 'entropy(0.1)'")
    else:
        policy, threshold = own_policy(model) or (Fixed(model.exits.layers[-1]), None)
        if threshold is not None:
            model.set_gate_threshold(threshold)
    try:
        policy.check(model.objective.name, model.exits.layers)
    except OfframpError as error:
        if asked is not None or not model.name_or_path:
            raise
        raise OfframpError(f"{Path(model.name_or_path) / POLICY}: {error}") from error
    warn_of_untrained(model, [exit for exit in range(len(model.exits)) if policy.asks(exit, model.exits.layers)])
    return policy


def warn_of_untrained(model: MultiExitModel, asked: Collection[int]) -> None:
    """Say which of the exits (0-based) that are asked were never trained. The last one answers under any policy."""
    last = len(model.exits) - 1
    random = [exit for exit in model.config.untrained_exits if exit in asked or exit == last]
    if random:
        layers = ", ".join(str(model.exits.layers[exit]) for exit in random)
        log.warning(UNTRAINED, model.name_or_path or "the model", layers)


def own_policy(model: MultiExitModel) -> tuple[Policy, float | None] | None:
    """The policy in a model's folder with the threshold of its gates, or that which its checkpoint brought."""
    found = folder_policy(Path(model.name_or_path)) if model.name_or_path else None
    return found or (None if model.stored_policy is None else (model.stored_policy, None))


def folder_policy(folder: Path) -> tuple[Policy, float | None] | None:
    """The policy that was calibrated for a model, if there is one in its folder, and the threshold of its gates."""
    path = folder / POLICY
    if not path.is_file():
        return None
    try:
        data = read_object(path)
        policy = policy_from_json(data["policy"] if isinstance(data.get("policy"), dict) else data)
        threshold = data.get(GATE_THRESHOLD)
        return policy, None if threshold is None else float(threshold)
    except (ValueError, TypeError) as error:
        raise OfframpError(f"{path} holds no policy ({one_line(error)})") from error
