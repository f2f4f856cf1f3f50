"""One optimiser step: gradients of all micro-batches and processes, in bf16 or fp32, onto weights kept in fp32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from offramp.training.phase_run import process_state
from offramp.training.pretraining.graphed import GraphedStep
from offramp.training.pretraining.heads import word_embeddings
from offramp.training.pretraining.model import LOSSES, PretrainingModel, rows_asked
from offramp.training.pretraining.muon import Muon
from offramp.training.pretraining.plan import PretrainingPlan
from offramp.training.pretraining.rows import StepRows


class Stepper:
    """Holds the model, its weights in full precision, and the optimisers.

    In bf16 the model computes with a rounded copy of the weights, activations and gradients included; the optimisers
    work on the fp32 weights. In fp32 both are the same tensors.
    """

    def __init__(self, model: PretrainingModel, plan: PretrainingPlan, bf16: bool) -> None:
        self.model = model
        self.plan = plan
        self.process = process_state()
        self.names = [name for name, _ in model.named_parameters()]
        self.weights: list[Tensor] = list(model.parameters())
        if bf16:
            self.weights = [nn.Parameter(weight.detach().clone()) for weight in self.weights]
            model.bfloat16()
            if model.teacher is not None:
                model.teacher.bfloat16()
        self.computed_with: list[Tensor] = list(model.parameters())
        self.gradients = [torch.zeros_like(weight) for weight in self.weights] if bf16 else []
        self._known_weights: dict[tuple[int, ...], Tensor] = {}
        self.optimisers = self._optimisers()
        self.rounded = bf16
        graphs = self.process.device.type == "cuda" and plan.accumulate == 1 and not plan.dropout
        self.compute = GraphedStep(self._compute, self.computed_with) if graphs else self._compute

    def _optimisers(self) -> list[torch.optim.Optimizer]:
        """Muon takes the matrices inside layers; AdamW the rest: embeddings, heads, biases, norms."""
        plan, words = self.plan, id(word_embeddings(self.model.backbone))
        embeddings = {id(p) for p in self.model.backbone.model.embeddings.parameters()} | {words}
        inside = {id(p) for name, p in self.model.backbone.named_parameters() if p.ndim == 2} - embeddings
        pairs = list(zip(self.computed_with, self.weights, strict=True))
        matrices = [weight for own, weight in pairs if id(own) in inside]
        others = [weight for own, weight in pairs if id(own) not in inside]
        if plan.optimiser == "adamw":
            matrices, others = [], matrices + others
        groups = [
            {"params": [weight for weight in others if weight.ndim == 2], "weight_decay": plan.weight_decay},
            {"params": [weight for weight in others if weight.ndim != 2], "weight_decay": 0.0},
        ]
        fused = self.weights[0].is_cuda
        adamw = torch.optim.AdamW(groups, lr=plan.learning_rate, betas=(0.9, 0.98), eps=1e-8, fused=fused)
        muon = [Muon(matrices, plan.learning_rate, weight_decay=plan.weight_decay)] if matrices else []
        return [*muon, adamw]

    @property
    def parts(self) -> int:
        """Micro-batches a step, over all processes."""
        return int(self.process.num_processes) * self.plan.accumulate

    def _compute(self, rows: StepRows, exits: Sequence[int], asked: Tensor | None) -> Tensor:
        """One micro-batch forward and backward: its share of the losses; the gradients are added to what is there."""
        losses: Tensor = self.model(rows.to(self.process.device), exits, asked) / self.parts
        (losses * self._weights(tuple(exits))).sum().backward()
        return losses.detach()

    def _weights(self, exits: tuple[int, ...]) -> Tensor:
        """Each group's lie on the device before its step is captured: nothing can be copied there in a graph."""
        if exits not in self._known_weights:
            self._known_weights[exits] = self.model.weights(exits).to(self.process.device)
        return self._known_weights[exits]

    def step(self, rows: StepRows, exits: Sequence[int], rate: float) -> Tensor:
        """Learn from the rows of one step; the losses of these exits, one column for each of `LOSSES`."""
        first = self.process.process_index * self.plan.accumulate
        asked = rows_asked(rows)
        asked = None if asked is None else (asked / self.parts).to(self.process.device)
        losses = torch.zeros(len(exits), len(LOSSES), device=self.process.device)
        for part in range(first, first + self.plan.accumulate):
            losses += self.compute(rows.part(part, self.parts), exits, asked)
        self._gather_gradients(losses)
        torch.nn.utils.clip_grad_norm_(self.weights, self.plan.clip or float("inf"), foreach=True)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        self.round()
        return losses

    def round(self) -> None:
        """Give the model the weights it computes with."""
        if self.rounded:
            with torch.no_grad():
                torch._foreach_copy_(self.computed_with, self.weights)

    def into_model(self) -> None:
        """Put the full-precision weights into the model, at the end of the run."""
        self.model.float()
        for own, kept in zip(self.computed_with, self.weights, strict=True):
            own.data = kept.data

    def _gather_gradients(self, losses: Tensor) -> None:
        """Add up over the processes, and move to the full-precision weights."""
        present = [number for number, own in enumerate(self.computed_with) if own.grad is not None]
        gradients = [gradient for own in self.computed_with if (gradient := own.grad) is not None]
        if self.rounded:
            full = [self.gradients[number] for number in present]
            torch._foreach_copy_(full, gradients)
            gradients = full
        if self.process.num_processes > 1:
            flat = torch.cat([losses.flatten(), *(gradient.flatten() for gradient in gradients)])
            torch.distributed.all_reduce(flat)
            of_losses, *parts = flat.split([losses.numel(), *(gradient.numel() for gradient in gradients)])
            losses.copy_(of_losses.view_as(losses))
            gradients = [part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True)]
        for number, gradient in zip(present, gradients, strict=True):
            self.computed_with[number].grad = None
            self.weights[number].grad = gradient

    def state(self) -> dict[str, Any]:
        return {
            "weights": dict(zip(self.names, (weight.detach() for weight in self.weights), strict=True)),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
        }

    @torch.no_grad()
    def restore(self, state: dict[str, Any]) -> None:
        for name, weight in zip(self.names, self.weights, strict=True):
            weight.copy_(state["weights"][name])
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        self.round()
