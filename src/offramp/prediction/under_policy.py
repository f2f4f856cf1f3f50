"""A model under a policy, run over rows in batches: what prediction of labels, numbers and spans has in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from offramp.errors import OfframpError, one_line
from offramp.interop import load
from offramp.models import MultiExitModel
from offramp.models.device import find_device
from offramp.models.early_exit import Answer
from offramp.models.skipping import Skipping
from offramp.policies import Fixed, Policy, policy_from_json, policy_from_text
from offramp.tasks.encoding import Row

POLICY = "policy.json"
READ_AHEAD = 32
"""Batches whose texts are read, and sorted by length, together: little padding, and memory stays flat."""

Item = TypeVar("Item")


class UnderPolicy:
    """A model, opened where it is a folder, its policy, and where and how many at a time it computes."""

    def __init__(
        self, model: MultiExitModel | str | Path, policy: Policy | str | None, batch_size: int, device: str
    ) -> None:
        self.model = model if isinstance(model, MultiExitModel) else load(model)
        if batch_size < 1:
            raise OfframpError(f"batch size must be 1 or more, not {batch_size}")
        self.policy = policy_for(self.model, policy)
        self.policy.check(self.model.objective.name, self.model.exits.layers)
        self.batch_size = batch_size
        self.read_ahead = READ_AHEAD
        self.device = find_device(device)
        if self.model.gates is not None and self.model.skipping is None and self.device.type == "cpu":
            self.model.skipping = Skipping(self.model)  # the same answers, without what the gates switch off

    def in_parts(self, items: Iterator[Item]) -> Iterator[list[Item]]:
        """As many items as are read together, until there are none. An error comes after the items before it."""
        while True:
            read, wrong = read_some(items, self.batch_size * self.read_ahead)
            if read:
                yield read
            if wrong is not None:
                raise wrong
            if not read:
                return

    def in_batches(
        self, rows: Sequence[Row], pad: Callable[[Sequence[Row]], dict[str, Tensor]], first: int
    ) -> Iterator[tuple[list[int], Answer]]:
        """Batches of rows of like length: their numbers, and what the model answers. Scripts count from `first`."""
        self.model.to(device=self.device)  # type: ignore[call-arg]
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        for start in range(0, len(order), self.batch_size):
            picked = order[start : start + self.batch_size]
            batch = {name: tensor.to(self.device) for name, tensor in pad([rows[row] for row in picked]).items()}
            samples = torch.tensor([first + row for row in picked], device=self.device)
            yield picked, self.model.answer(self.policy, **batch, samples=samples)


def read_some(items: Iterator[Item], most: int) -> tuple[list[Item], OfframpError | None]:
    """The next items, and what is wrong with the one after them: those before it can be answered first."""
    read: list[Item] = []
    try:
        for item in islice(items, most):
            read.append(item)
    except OfframpError as error:
        return read, error
    return read, None


def policy_for(model: MultiExitModel, asked: Policy | str | None) -> Policy:
    """The policy asked for, or the folder's own, or full depth."""
    if isinstance(asked, Policy):
        return asked
    if isinstance(asked, str):
        return policy_from_text(asked)
    own = folder_policy(Path(model.name_or_path)) if model.name_or_path else None
    return own or Fixed(model.exits.layers[-1])


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
