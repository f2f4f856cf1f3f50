"""The menu: what other limits of the same loss would give, so that a request can ask for one of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from offramp.policies import Policy, policy_from_json
from offramp.typed_json import typed

MENU = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1)
"""Limits that are tried besides the one that was asked for. They do not depend on any data."""


@dataclass(frozen=True)
class MenuPoint:
    """A policy that keeps a limit, each point with the promise's confidence for itself."""

    limit: float
    policy: Policy
    risk: float
    bound: float
    mean_layers: float
    cost: float
    speed_up: float
    score: float | None
    """Of the task's own metric; none without labels."""
    agreement: float | None = None
    """Share of the rows on which it answers as full depth does."""

    def to_json(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"policy": self.policy.to_json()}

    @classmethod
    def from_json(cls, data: Any) -> MenuPoint:
        """What `to_json` wrote; anything else is a ValueError."""
        numbers: Mapping[str, Any] = typed(dict[str, Any], data, "menu")
        policy = policy_from_json(numbers.get("policy"))
        kinds = {field.name: get_type_hints(cls)[field.name] for field in fields(cls) if field.name != "policy"}
        given = {name: typed(kinds[name], numbers[name], f"menu.{name}") for name in kinds.keys() & numbers.keys()}
        return cls(policy=policy, **given)


def cheaper_with_more(points: Iterable[MenuPoint], promised: float) -> tuple[MenuPoint, ...]:
    """In the order of their limits, without those that a lower limit is as cheap as; the promised one stays."""
    menu: list[MenuPoint] = []
    for point in sorted(points, key=lambda point: point.limit):
        if point.limit == promised or all(point.cost < other.cost for other in menu):
            menu.append(point)
    return tuple(menu)
