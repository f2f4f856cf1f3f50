"""EBERT (Liu et al., 2021): gates learn, for each input, which heads and neurons a fine-tuned model can do without."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from offramp.errors import OfframpError
from offramp.models import GateSettings, Kept, MultiExitModel
from offramp.models.flops import EbertLayer
from offramp.models.gate_settings import PREDICTOR_WIDTH
from offramp.recipes.base import ConstantGroup, Forward, Loss, Phase, Recipe, Schedule
from offramp.recipes.plain import Plain


@dataclass(frozen=True)
class EBERT(Recipe):
    """Fine-tune; then train on with gates, under a penalty that draws the FLOPs to a target; then, if wanted, once
    more with the gates standing still.

        L = L_task + λ · [ (s − s*)² + 5/n Σ_l (s* − (1 − k_l / heads))² + 5/n Σ_l (s* − (1 − r_l))² ]

    with s* = 1 − target, k_l and r_l the batch's mean number of kept heads and mean share of kept neurons in layer l,
    and s = 1 − FLOPs / FLOPs of all heads and neurons, the predictors' own included.

    What is trained besides the gates, and by which loss, is another recipe's business (`base`): first without gates,
    then with them. With `elasticbert` an input can both skip heads and leave early.

    Args:
        target: the FLOPs to aim at, as a share of all.
        penalty: λ.
        predictor_rate: the gates' constant learning rate.
        heads, neurons: how gates decide: `gumbel` or `topk` (no penalty where the neurons' mode is `topk`).
        block: neurons that share a gate. 1 is EBERT; with 64, what is skipped is a dense product.
        distil: weight of each exit's distance from the same exit of the fine-tuned model; the losses keep 1 − distil.
        distil_temperature: of that distance.
        retrain: epochs of the third phase. Its gates are those of inference; the released code goes on sampling.
        fine_tune: begin with the phase without gates; not needed on a backbone that is fine-tuned already.
        padded_mean: the first layer's head gates see the padding too, as in the released code (parity only).
        legacy_flops: count heads as 64 wide and 12 of them in a predictor, as the released code does (parity only).
        base: the recipe of the exits.
    """

    reference = "EBERT (Liu et al., Findings of ACL 2021)"

    target: float = 0.8
    penalty: float = 4.0
    predictor_rate: float = 0.02
    heads: Literal["gumbel", "topk"] = "gumbel"
    neurons: Literal["gumbel", "topk"] = "gumbel"
    block: int = 1
    distil: float = 0.0
    distil_temperature: float = 2.0
    retrain: int = 0
    fine_tune: bool = True
    padded_mean: bool = False
    legacy_flops: bool = False
    base: Recipe = field(default_factory=Plain)
    schedule: Schedule = Schedule(learning_rate=3e-5, batch_size=32)

    def __post_init__(self) -> None:
        if not 0 < self.target <= 1:
            raise OfframpError(f"target FLOPs are a share of all, more than 0 and at most 1, not {self.target}")
        if not 0 <= self.distil <= 1:
            raise OfframpError(f"ebert: distil is a share, 0 to 1, not {self.distil}")
        if not self.distil_temperature > 0:
            raise OfframpError(f"ebert: distil_temperature must be more than 0, not {self.distil_temperature}")
        for name, value in (("penalty", self.penalty), ("predictor_rate", self.predictor_rate)):
            if value < 0:
                raise OfframpError(f"ebert: {name} must be 0 or more, not {value}")
        if self.retrain < 0:
            raise OfframpError(f"ebert: retrain is a number of epochs, 0 or more, not {self.retrain}")
        if isinstance(self.base, EBERT):
            raise OfframpError("ebert goes with one other recipe, not with itself")
        _ = self.settings
        # One schedule for all phases: what the other recipe's own would have been does not matter.
        object.__setattr__(self, "base", dataclasses.replace(self.base, schedule=self.schedule))  # type: ignore[call-arg]

    @property
    def full_name(self) -> str:
        return self.name if isinstance(self.base, Plain) else f"{self.name}+{self.base.full_name}"

    @property
    def settings(self) -> GateSettings:
        return GateSettings(
            sparsity=1 - self.target,
            heads=self.heads,
            neurons=self.neurons,
            block=self.block,
            first_input="padded_mean" if self.padded_mean else "mean",
        )

    def prepare(self, model: MultiExitModel) -> None:
        self.base.prepare(model)
        self.refuse_impossible_target(model)
        if model.gates is None:
            model.add_gates(self.settings)
            return
        there = model.gates.settings
        if there.folded is not None:
            raise OfframpError("the gates of this model are folded into its weights: train the model they came from")
        if there.block != self.block:
            raise OfframpError(f"this model's gates are for blocks of {there.block} neurons, not {self.block}")
        # What the predictors were made for stays; what they are asked changes.
        settings = dataclasses.replace(there, sparsity=1 - self.target, heads=self.heads, neurons=self.neurons)
        model.gates.change(settings)
        model.config.gates = settings.to_json()

    def refuse_impossible_target(self, model: MultiExitModel) -> None:
        """No gate can save what predicting the gates costs."""
        layer, tokens = self.layer_of(model), model.config.max_text_tokens or model.backbone.max_length
        least = layer.gated(tokens, 0, 0) / layer.all_kept(tokens)
        if self.target <= least:
            raise OfframpError(
                f"target FLOPs {self.target:g} cannot be met: the gates' own predictors cost {least:.2g} of a layer at "
                f"{tokens} tokens"
            )

    def layer_of(self, model: MultiExitModel) -> EbertLayer:
        """What FLOPs are counted from."""
        config = model.config.backbone_config
        heads, neurons = config.num_attention_heads, config.intermediate_size
        width = PREDICTOR_WIDTH if model.gates is None else model.gates.settings.width
        return EbertLayer(config.hidden_size, heads, neurons, self.legacy_flops, self.block, width)

    def phases(self, model: MultiExitModel) -> list[Phase]:
        names = frozenset(name for name, _ in model.named_parameters() if name.startswith("gates."))
        theirs = self.base.phases(model)
        of_trunk = [phase for phase in theirs if trains_trunk(phase)]
        if not of_trunk:
            raise OfframpError(
                f"{self.full_name}: gates learn together with the backbone, and {self.base.name} leaves that as it is: "
                "use another recipe, such as ebert+deebert"
            )
        return [
            *([dataclasses.replace(phase, gates="open") for phase in of_trunk] if self.fine_tune else []),
            *(self.with_gates(phase, names) for phase in of_trunk),
            *([self.with_gates_as_they_are(phase) for phase in of_trunk] if self.retrain else []),
            *(
                dataclasses.replace(phase, name=f"gated-{phase.name}", gates="decide")
                for phase in theirs
                if not trains_trunk(phase)
            ),
        ]

    def with_gates(self, phase: Phase, gates: frozenset[str]) -> Phase:
        """The phase once more, with gates that learn under the penalty."""
        first, *others = phase.losses
        own_rate = ConstantGroup(gates, self.predictor_rate, clipped=True)
        return dataclasses.replace(
            phase,
            name=f"gated-{phase.name}",
            trains=phase.trains | gates,
            losses=(GatedLoss(first, self), *(Share(loss, 1 - self.distil) for loss in others)),
            # With `topk` the released code has one optimiser for all.
            constant_groups=phase.constant_groups + ((own_rate,) if self.heads == "gumbel" else ()),
            gates="sample",
            teacher=phase.teacher or self.distil > 0,
        )

    def with_gates_as_they_are(self, phase: Phase) -> Phase:
        """The phase once more, with gates that stand still."""
        schedule = dataclasses.replace(self.schedule, epochs=self.retrain)
        return dataclasses.replace(phase, name=f"retrain-{phase.name}", gates="decide", schedule=schedule)

    def flops_penalty(self, forward: Forward) -> Tensor:
        """λ · [ (s − s*)² + 5 · heads' term + 5 · neurons' term ]"""
        gap, heads, neurons, _ = self.penalty_parts(forward)
        return self.penalty * (gap + 5 * heads + 5 * neurons)

    def penalty_parts(self, forward: Forward) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(s − s*)², the means over the layers of the heads' and the neurons' terms, and s."""
        layer, wanted = self.layer_of(forward.model), 1 - self.target
        kept = torch.stack([mean_kept(gates) for gates in forward.gates])  # (n, 2)
        heads, neurons = kept[:, 0], kept[:, 1]
        flops = (
            layer.head(forward.tokens) * layer.heads * heads
            + layer.ffn(forward.tokens) * neurons
            + layer.head_predictor()
            + layer.ffn_predictor()
        ).sum()
        sparsity = 1 - flops / (len(kept) * layer.all_kept(forward.tokens))
        terms = (wanted - (1 - heads)).square().mean(), (wanted - (1 - neurons)).square().mean()
        return (sparsity - wanted).square(), *terms, sparsity


def mean_kept(gates: Kept) -> Tensor:
    """The batch's mean share of kept heads and of kept neurons: (2,)."""
    heads, neurons = gates
    wide = torch.float64 if heads.dtype == torch.float64 else torch.float32
    return torch.stack([heads.to(wide).mean(), neurons.to(wide).mean()])


def trains_trunk(phase: Phase) -> bool:
    return any(name.startswith("backbone.") for name in phase.trains)


@dataclass(frozen=True)
class Share:
    """A part of a loss."""

    whole: Loss
    part: float

    def __call__(self, forward: Forward) -> Tensor:
        return self.part * self.whole(forward)


@dataclass(frozen=True)
class GatedLoss:
    """A loss of the base recipe, what the teacher says, and the penalty."""

    task: Loss
    recipe: EBERT

    def __call__(self, forward: Forward) -> Tensor:
        distil, t = self.recipe.distil, self.recipe.distil_temperature
        loss = (1 - distil) * self.task(forward)
        if distil:
            for student, teacher in zip(forward.logits, forward.teacher or (), strict=True):
                loss = loss + distil * t**2 * forward.objective.distil(student, teacher, t)
        if self.recipe.neurons == "topk" or self.recipe.target == 1:
            return loss
        return loss + self.recipe.flops_penalty(forward)
