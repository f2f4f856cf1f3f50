"""What a policy is: a rule, stepped exit by exit over the rows of a batch, with its own small state.

The same `step` drives a live batch (`model.answer`) and a stored trace (`first_exit`), so the two cannot disagree.
"""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from offramp.errors import OfframpError
from offramp.policies.settings import checked

State = Any
"""None, a tensor whose first dimension is the rows, or a tuple of states."""

PerLayer = float | Sequence[float]
"""One number for every layer, or one for each layer of the backbone."""

REGISTRY: dict[str, type[Policy]] = {}
"""Every policy by its name."""

EVERY_TASK = frozenset({"classification", "regression", "span"})
"""The kinds of task there are."""

INSTEAD = {
    "regression": "patience(2, tolerance=0.5) or fixed(layer)",
    "span": "entropy(0.5), confidence(0.5) or patience(2)",
}
"""What to use on a task that a rule is not for."""


@dataclasses.dataclass(frozen=True)
class Policy(ABC):
    """When to leave.

    A subclass is a frozen dataclass of the rule's numbers. Its name in JSON and on the command line is its class name
    in snake case; defining it registers it.
    """

    name: ClassVar[str]
    tasks: ClassVar[frozenset[str]] = frozenset({"classification"})
    """The kinds of task on which the rule makes sense."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        if not any(getattr(getattr(cls, name, None), "__isabstractmethod__", False) for name in dir(cls)):
            REGISTRY[cls.name] = cls  # a rule, not a base of rules

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = checked(getattr(self, field.name), str(field.type), f"{self.name}: {field.name}")
            object.__setattr__(self, field.name, value)

    def start(self, samples: Tensor) -> State:
        """State before the first exit; `samples` (B,) numbers the rows."""
        return None

    def asks(self, exit: int, exit_layers: Sequence[int]) -> bool:
        """Whether the rule looks at this exit (0-based) at all."""
        return True

    @abstractmethod
    def step(self, layer: int, logits: Tensor, state: State) -> tuple[Tensor, State]:
        """Given the logits of the exit after `layer` (1-based): which rows leave (B,), and the next state.

        Logits are (B, C), or (B, T, 2) for spans with padding at the smallest finite number; see `choices`.
        """

    def check(self, task: str, exit_layers: Sequence[int]) -> None:
        """Refuse a model or task on which the rule makes no sense."""
        if task not in self.tasks:
            raise OfframpError(f"{self.name} makes no sense for {task}: use {INSTEAD[task]} instead")
        for field in dataclasses.fields(self):
            numbers = getattr(self, field.name)
            if str(field.type) == "PerLayer" and isinstance(numbers, tuple) and len(numbers) != exit_layers[-1]:
                raise OfframpError(
                    f"{self.name} has {len(numbers)} values of {field.name}, but the model has {exit_layers[-1]} "
                    "layers: give one number, or one for each layer"
                )

    @classmethod
    def candidates(cls, exit_logits: Tensor, exit_layers: Sequence[int], task: str) -> list[Policy]:
        """Settings that cover the rule's whole range on a trace (see `first_exit`); none where it is not swept."""
        return []

    @classmethod
    def from_papers(cls, task: str) -> list[Policy]:
        """The settings its paper reports on tasks of this kind."""
        return []

    def __or__(self, other: Policy) -> Policy:
        from offramp.policies.combined import Either

        return Either((self, other))

    def __and__(self, other: Policy) -> Policy:
        from offramp.policies.combined import Both

        return Both((self, other))

    @property
    def curve(self) -> str:
        """The rule without its numbers: what its sweep is called."""
        return self.name

    def __str__(self) -> str:
        from offramp.policies.text import policy_to_text

        return policy_to_text(self)

    def to_json(self) -> dict[str, Any]:
        """A dict that `policy_from_json` turns back into an equal policy."""
        return {"policy": self.name} | {
            field.name: as_json(getattr(self, field.name)) for field in dataclasses.fields(self)
        }


def as_json(value: Any) -> Any:
    if isinstance(value, Policy):
        return value.to_json()
    return [as_json(item) for item in value] if isinstance(value, tuple) else value


def policy_from_json(data: Any) -> Policy:
    """The policy that `to_json` wrote."""
    if not isinstance(data, dict) or not isinstance(data.get("policy"), str):
        raise OfframpError('a policy in JSON is an object such as {"policy": "entropy", "threshold": 0.1}')
    if data["policy"] not in REGISTRY:
        raise OfframpError(f"unknown policy {data['policy']!r}: use one of {', '.join(sorted(REGISTRY))}")
    rule = REGISTRY[data["policy"]]
    known = {field.name for field in dataclasses.fields(rule)}
    numbers = {key: value for key, value in data.items() if key != "policy"}
    if unknown := sorted(numbers.keys() - known):
        raise OfframpError(f"{rule.name} has no setting {unknown[0]!r}: it has {', '.join(sorted(known)) or 'none'}")
    if isinstance(numbers.get("of"), list):
        numbers["of"] = tuple(policy_from_json(part) for part in numbers["of"])
    try:
        return rule(**numbers)
    except TypeError as error:
        raise OfframpError(f"{rule.name} needs {', '.join(sorted(known))} ({error})") from error


def at_layer(numbers: PerLayer, layer: int) -> float:
    """The number that holds at `layer` (1-based)."""
    return float(numbers) if isinstance(numbers, int | float) else float(numbers[layer - 1])


def choices(logits: Tensor) -> Tensor:
    """What each row chooses from: labels, (B, C) to (B, 1, C), or start and end of a span, (B, T, 2) to (B, 2, T).

    A rule that looks at each choice on its own, and then at all of them, is a rule for labels and for spans.
    """
    return logits.transpose(1, 2) if logits.ndim == 3 else logits.unsqueeze(1)


def probabilities(logits: Tensor) -> Tensor:
    """Softmax in at least float32: decisions do not depend on the precision the model runs in more than they must."""
    return at_least_float32(logits).softmax(-1)


def at_least_float32(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()


def select_rows(state: State, rows: Tensor) -> State:
    """The state of the rows that stay, when others leave the batch."""
    if isinstance(state, tuple):
        return tuple(select_rows(part, rows) for part in state)
    return None if state is None else state[rows]


def join_rows(states: Sequence[State]) -> State:
    """The state of the rows of several batches of one policy, end to end."""
    if isinstance(states[0], tuple):
        return tuple(join_rows(parts) for parts in zip(*states, strict=True))
    return None if states[0] is None else torch.cat(list(states))


def first_exit(
    policy: Policy,
    exit_logits: Tensor,
    exit_layers: Sequence[int] | None = None,
    task: str = "classification",
    samples: Tensor | None = None,
) -> Tensor:
    """Which exit (0-based) each sample of a trace leaves by; the last one takes whoever is left.

    A trace is (E, N, C), or (E, N, T, 2) for spans, padded with the smallest finite number.
    """
    exits, rows = exit_logits.shape[:2]
    layers = range(1, exits + 1) if exit_layers is None else exit_layers
    policy.check(task, layers)
    state = policy.start(torch.arange(rows, device=exit_logits.device) if samples is None else samples)
    chosen = torch.full((rows,), exits - 1, device=exit_logits.device)
    gone = torch.zeros(rows, dtype=torch.bool, device=exit_logits.device)
    for exit in range(exits - 1):
        if not policy.asks(exit, layers):
            continue
        leave, state = policy.step(layers[exit], exit_logits[exit], state)
        chosen[leave & ~gone] = exit
        gone |= leave
    return chosen
