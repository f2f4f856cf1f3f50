"""The gradient of one optimiser step of a phase, gathered micro-batch by micro-batch."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from types import TracebackType

import torch
from torch import Tensor, nn

from offramp.errors import OfframpError
from offramp.models import Kept, MultiExitModel
from offramp.recipes import Forward, Gradients, Phase


class PhaseGradients:
    """Freezes what a phase does not train, and leaves on the parameters the gradient the phase asks for.

    What was frozen before stays frozen.

    Where the phase edits gradients, each loss's gradient is summed over the micro-batches on its own and the edit sees
    the sums: accumulating over k micro-batches is the same as one batch k times as large.

    >>> with PhaseGradients(model, phase) as gradients:
    ...     gradients.add(batch)
    ...     gradients.finish()
    ...     optimiser.step()
    """

    def __init__(self, model: MultiExitModel, phase: Phase) -> None:
        self.model = model
        self.phase = phase
        self.by_loss: list[Gradients] = []
        self.wanted = {name: p.requires_grad for name, p in model.named_parameters()}
        self.trained = {n: p for n, p in model.named_parameters() if n in phase.trains and p.requires_grad}
        if not self.trained:
            raise OfframpError(f"phase {phase.name!r} trains nothing on this model: all it would train is frozen")
        self.watched = self.trained
        """Whose gradients are computed: what is trained and, where the clipped norm counts them, the frozen."""
        if phase.clip_sees_frozen and phase.edit_gradients is None:
            self.watched = dict(model.named_parameters())
        self.clipped = [parameter for name, parameter in model.named_parameters() if name not in phase.unclipped]
        self.gate_mode = model.gates.mode if model.gates is not None else None
        self.teacher = copy_as_teacher(model, phase) if phase.teacher else None

    def __enter__(self) -> PhaseGradients:
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in self.trained or self.phase.clip_sees_frozen)
        if self.model.gates is not None:
            self.model.gates.set_mode(self.phase.gates)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(self.wanted[name])
            parameter.grad = None
        if self.model.gates is not None and self.gate_mode is not None:
            self.model.gates.set_mode(self.gate_mode)

    def forward(self, batch: Mapping[str, Tensor]) -> Forward:
        """One pass over a micro-batch, as the phase's losses want to see it."""
        inputs = dict(batch)
        target = self.model.target(inputs)
        if target is None:
            raise OfframpError(f"the batch has no labels (it has {', '.join(sorted(batch))}): training needs them")
        exits = self.phase.exit_numbers(self.model)
        output = self.model(**inputs, exits=exits, branch=self.phase.branch)
        return Forward(
            output.exit_logits,
            target,
            self.model.objective,
            self.model,
            tokens=inputs["input_ids"].shape[1],
            gates=[Kept(*kept) for kept in output.gates or ()],
            teacher=self.ask_teacher(inputs, exits),
        )

    @torch.no_grad()
    def ask_teacher(self, inputs: Mapping[str, Tensor], exits: Sequence[int]) -> tuple[Tensor, ...] | None:
        """The teacher's logits at these exits; None where the phase has no teacher."""
        if self.teacher is None:
            return None
        logits: tuple[Tensor, ...] = self.teacher(**inputs, exits=exits).exit_logits
        return logits

    def losses(self, batch: Mapping[str, Tensor], weight: float = 1.0) -> list[Tensor]:
        """The phase's losses on a micro-batch, times `weight` (its share of the step)."""
        forward = self.forward(batch)
        return [loss(forward) * weight for loss in self.phase.losses]

    def add(self, batch: Mapping[str, Tensor], weight: float = 1.0) -> float:
        """Add a micro-batch's gradient, times `weight`; return its loss."""
        losses = self.losses(batch, weight)
        self.add_gradients(losses)
        return sum(float(loss.detach()) for loss in losses) / weight

    def add_gradients(self, losses: list[Tensor]) -> None:
        """Add the gradient of a micro-batch's losses."""
        if self.phase.edit_gradients is None:
            torch.stack(losses).sum().backward()
        else:
            self._add_each(losses)

    def _add_each(self, losses: list[Tensor]) -> None:
        self.by_loss = self.by_loss or [{} for _ in losses]
        for sums, gradients in zip(self.by_loss, self.gradients_of(losses), strict=True):
            for name, gradient in gradients.items():
                sums[name] = sums[name] + gradient if name in sums else gradient

    def gradients_of(self, losses: list[Tensor]) -> list[Gradients]:
        """The gradient of each loss where the phase edits them, of their sum where it does not; nothing is added."""
        apart = losses if self.phase.edit_gradients is not None else [torch.stack(losses).sum()]
        names, parameters = zip(*self.watched.items(), strict=True)
        found = []
        for loss in apart:
            gradients = torch.autograd.grad(loss, parameters, retain_graph=loss is not apart[-1], allow_unused=True)
            each = zip(names, gradients, strict=True)
            found.append({name: gradient for name, gradient in each if gradient is not None})
        return found

    def held(self) -> list[Gradients]:
        """What was gathered so far in this step: by loss where the phase edits, else in one."""
        if self.phase.edit_gradients is not None:
            return self.by_loss or [{} for _ in self.phase.losses]
        return [{name: p.grad for name, p in self.watched.items() if p.grad is not None}]

    def hold(self, gathered: list[Gradients]) -> None:
        """Take over what was gathered elsewhere, instead of what is held."""
        if self.phase.edit_gradients is not None:
            self.by_loss = gathered
            return
        [gradients] = gathered
        for name, parameter in self.watched.items():
            parameter.grad = gradients.get(name)

    def sum_over_processes(self) -> None:
        """Add up what every process gathered: before the edit, which has to see the whole step."""
        self.average_statistics()
        self.hold([summed_over_processes(sums, self.watched) for sums in self.held()])

    def average_statistics(self) -> None:
        """Each process has seen other rows: the gates' batch statistics become the mean of theirs."""
        if self.model.gates is None or self.phase.gates != "sample":
            return
        running = [buffer for buffer in self.model.gates.buffers() if buffer.is_floating_point()]
        flat = torch.cat(running)
        torch.distributed.all_reduce(flat)
        flat /= torch.distributed.get_world_size()
        for buffer, mean in zip(running, flat.split([len(buffer) for buffer in running]), strict=True):
            buffer.copy_(mean)

    def edit(self) -> None:
        """Leave on the parameters what the phase makes of its losses' gradients."""
        if self.phase.edit_gradients is not None:
            first, second = self.by_loss
            for name, gradient in self.phase.edit_gradients(first, second).items():
                self.trained[name].grad = gradient
            self.by_loss = []

    def clip(self) -> Tensor:
        """Clip to the phase's norm (0: do not). Returns the norm before clipping."""
        return nn.utils.clip_grad_norm_(self.clipped, self.phase.schedule.clip or torch.inf)

    def finish(self) -> float:
        """Edit and clip; the parameters then hold what the optimiser is to see. Returns the norm before clipping."""
        self.edit()
        return float(self.clip())

    def clear(self) -> None:
        """Forget the gradients of the last step, but for those that a recipe says are kept."""
        kept = {name for group in self.phase.constant_groups if group.keep_gradient for name in group.names}
        for name, parameter in self.model.named_parameters():
            if name not in kept:
                parameter.grad = None


def copy_as_teacher(model: MultiExitModel, phase: Phase) -> MultiExitModel:
    """The model as it is now, never to change: with all of every layer, unless the gates of the phase decide."""
    teacher: MultiExitModel = copy.deepcopy(model)
    teacher.eval().requires_grad_(False)
    if teacher.gates is not None:
        teacher.gates.set_mode("decide" if phase.gates == "decide" else "open")
    return teacher


def summed_over_processes(held: Gradients, parameters: Mapping[str, nn.Parameter]) -> Gradients:
    """Each gradient's sum over all processes; one that no process holds stays absent.

    A process may hold none at all: the last step of an epoch can have fewer rows than there are processes.
    """
    names = sorted(parameters)
    device = parameters[names[0]].device
    holders = torch.tensor([float(name in held) for name in names], device=device)
    torch.distributed.all_reduce(holders)
    present = [name for name, count in zip(names, holders.tolist(), strict=True) if count]
    parts = [(held[name] if name in held else torch.zeros_like(parameters[name])).flatten() for name in present]
    flat = torch.cat(parts)
    torch.distributed.all_reduce(flat)
    pieces = flat.split([parameters[name].numel() for name in present])
    return {name: piece.view_as(parameters[name]) for name, piece in zip(present, pieces, strict=True)}
