"""What a recipe is: phases, each saying what is trained, by which losses, and how.

A recipe knows nothing of tasks and files. `offramp.training` runs its phases.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from offramp.errors import OfframpError
from offramp.models import Branch, Kept, MultiExitModel, Objective
from offramp.models.gates import Mode

REGISTRY: dict[str, type[Recipe]] = {}
"""Every recipe by its name."""


@dataclass(frozen=True)
class Forward:
    """What a loss sees of one pass: the logits of the exits the phase asked for, first to last, and the labels."""

    logits: Sequence[Tensor]
    target: Tensor
    objective: Objective
    model: MultiExitModel
    tokens: int = 0
    """Length of the rows, padding included."""
    gates: Sequence[Kept] = ()
    """What was kept in each layer; none where the gates are open."""
    teacher: Sequence[Tensor] | None = None
    """The logits of the phase's teacher."""

    def loss(self, exit: int) -> Tensor:
        """The task's loss of one exit, by its place in `logits`."""
        return self.objective.loss(self.logits[exit], self.target)

    def losses(self) -> list[Tensor]:
        """The task's loss of each exit."""
        return [self.loss(exit) for exit in range(len(self.logits))]


Loss = Callable[[Forward], Tensor]

Gradients = dict[str, Tensor]
"""A gradient for each parameter name; parameters a loss does not reach are absent."""


@dataclass(frozen=True)
class Schedule:
    """How long and how fast. The learning rate rises linearly over `warmup` (a share of the steps), then falls to 0."""

    learning_rate: float = 2e-5
    epochs: int = 3
    batch_size: int = 8
    warmup: float = 0.0
    weight_decay: float = 0.0
    clip: float = 1.0
    max_steps: int | None = None
    """Optimiser steps of a phase; overrides `epochs`."""
    warmup_steps: int | None = None
    """Steps in which the learning rate rises; overrides `warmup`."""
    adam_epsilon: float = 1e-8

    def steps(self, per_epoch: int) -> int:
        """Optimiser steps of a phase whose epochs have `per_epoch` steps."""
        return self.max_steps or per_epoch * self.epochs


@dataclass(frozen=True)
class ConstantGroup:
    """Parameters with a learning rate of their own that neither rises nor falls."""

    names: frozenset[str]
    learning_rate: float
    keep_gradient: bool = False
    """Never zero the gradient between steps: ELBERT's released behaviour, for parity only."""
    clipped: bool = False
    """Counted in the clipped norm, and clipped, with all other parameters."""


@dataclass(frozen=True)
class Phase:
    """One stage of training."""

    name: str
    trains: frozenset[str]
    """Names of the parameters that change; everything else is frozen, and no gradient is computed for it."""
    losses: tuple[Loss, ...]
    """The phase minimises their sum."""
    exits: Literal["all", "early", "last"] = "all"
    """Which exits the losses look at; no other exit, and no layer above them, is computed."""
    branch: Branch | None = None
    """Shapes the gradient where exits leave the trunk."""
    edit_gradients: Callable[[Gradients, Gradients], Gradients] | None = None
    """With two losses: given the gradient of each, the gradient to step with."""
    constant_groups: tuple[ConstantGroup, ...] = ()
    clip_sees_frozen: bool = False
    """Compute frozen parameters' gradients too and count them in the clipped norm: DeeBERT's released behaviour."""
    gates: Mode = "decide"
    """How the gates decide in this phase, where the model has any."""
    teacher: bool = False
    """Keep a copy of the model as it is when the phase begins, and show the losses its logits. Its gates are open, or
    decide where those of the phase do: what learnt with gates that decide may know little with all of them open.
    """
    schedule: Schedule = field(default_factory=Schedule)

    @property
    def trains_gates(self) -> bool:
        return any(name.startswith("gates.") for name in self.trains)

    @property
    def unclipped(self) -> frozenset[str]:
        """Names of the parameters that clipping leaves alone."""
        return frozenset(name for group in self.constant_groups if not group.clipped for name in group.names)

    @property
    def constant(self) -> frozenset[str]:
        """Names of the parameters in constant groups."""
        return frozenset(name for group in self.constant_groups for name in group.names)

    def exit_numbers(self, model: MultiExitModel) -> Sequence[int]:
        """Which exits the phase looks at, from 0."""
        last = len(model.exits) - 1
        return {"all": range(last + 1), "early": range(last), "last": range(last, last + 1)}[self.exits]

    def trained_exits(self, model: MultiExitModel) -> list[int]:
        """Which exits (0-based) can answer once the phase is through: those it looks at and whose heads it trains."""
        trains = {parameter for name, parameter in model.named_parameters() if name in self.trains}
        return [exit for exit in self.exit_numbers(model) if model.exits.parameters_of(exit) <= trains]


@dataclass(frozen=True)
class Recipe(ABC):
    """How a model is trained. A subclass is a frozen dataclass of the method's numbers; defining it registers it."""

    name: ClassVar[str]
    reference: ClassVar[str] = ""
    """What a model card calls the method."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.name = cls.__name__.lower()
        REGISTRY[cls.name] = cls

    @property
    def full_name(self) -> str:
        """With the recipe it is combined with, if any."""
        return self.name

    def prepare(self, model: MultiExitModel) -> None:
        """Give the model what the method needs beyond its exits. Called once, before the first phase."""

    @abstractmethod
    def phases(self, model: MultiExitModel) -> list[Phase]:
        """The stages of training, in order."""


def one_of(setting: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a misspelt word before it trains something else."""
    if value not in known:
        raise OfframpError(f"{setting}={value!r}: use {' or '.join(map(repr, known))}")


def everything(model: MultiExitModel) -> frozenset[str]:
    """All but the gates: only a recipe that knows of them trains them."""
    return frozenset(name for name, _ in model.named_parameters() if not name.startswith("gates."))


def trunk_and_last_exit(model: MultiExitModel) -> frozenset[str]:
    early = exits_below_last(model)
    return frozenset(name for name in everything(model) if name not in early and name != "loss_weights")


def exits_below_last(model: MultiExitModel) -> frozenset[str]:
    """What the early exits are made of and the last exit is not: nothing where one head serves all."""
    last = model.exits.parameters_of(len(model.exits) - 1)
    return _names_of(model, set(model.exits.parameters()) - last)


def exits_only(model: MultiExitModel) -> frozenset[str]:
    return _names_of(model, set(model.exits.parameters()))


def _names_of(model: MultiExitModel, parameters: set[nn.Parameter]) -> frozenset[str]:
    return frozenset(name for name, parameter in model.named_parameters() if parameter in parameters)


def last_exit_loss(forward: Forward) -> Tensor:
    """L(z_n, y)"""
    return forward.loss(-1)


def sum_of_losses(forward: Forward) -> Tensor:
    """Σ_i L(z_i, y)"""
    total: Tensor = sum(forward.losses())  # type: ignore[assignment]
    return total
