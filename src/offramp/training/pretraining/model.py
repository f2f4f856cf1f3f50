"""A backbone with pre-training heads after every layer, and the losses of one step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from offramp.backbones import Backbone
from offramp.recipes.elasticbert import equilibrium
from offramp.training.pretraining.heads import AlikeHead, PretrainingHeads, word_embeddings
from offramp.training.pretraining.pairs import PairRows
from offramp.training.pretraining.plan import PretrainingPlan
from offramp.training.pretraining.rows import IGNORED, Rows, StepRows
from offramp.training.pretraining.teacher import ImitationHead, Teacher

LOSSES = ("words", "order", "teacher", "alike")
"""What an exit is asked: the words that were masked, the order of two halves, what the teacher's states are, and how
alike two texts are."""


class PretrainingModel(nn.Module):
    """Runs packed rows through the layers; each exit of a group is asked for masked words, and what else there is."""

    def __init__(self, backbone: Backbone, plan: PretrainingPlan, teacher: Teacher | None = None) -> None:
        super().__init__()
        self.backbone = backbone
        self.plan = plan
        self.heads = PretrainingHeads(backbone, plan.order)
        self._teacher = (teacher,)  # not a part: it is neither trained nor saved
        taught = backbone.depth if teacher is not None else 0
        width = teacher.width if teacher is not None else 0
        self.imitation = nn.ModuleList(ImitationHead(backbone.hidden_size, width) for _ in range(taught))
        self.alike = nn.ModuleList(AlikeHead(backbone.hidden_size) for _ in range(backbone.depth if plan.pairs else 0))

    def forward(self, rows: StepRows, exits: Sequence[int], asked: Tensor | None = None) -> Tensor:
        """The losses of these exits (0-based, ascending), one column for each of `LOSSES`: (E, 4).

        `asked` is the number of rows asked for their order, where they are a part of a larger batch.
        """
        if isinstance(rows, PairRows):
            return self._pair_losses(rows, exits)
        assert isinstance(rows, Rows)
        asked = rows_asked(rows) if asked is None else asked
        taught = self.teacher(self._for_the_teacher(rows)) if self.teacher is not None else None
        losses = []
        for exit, hidden in self.states(rows, exits):
            words = self.at(hidden, rows.positions)
            loss = self.heads.words[exit](
                words, word_embeddings(self.backbone), self.heads.bias, rows.targets.flatten()
            )
            order = self.heads.order[exit](hidden[:, 0], rows.order, asked) if rows.order is not None else loss * 0
            missed = self.imitation[exit](hidden[: len(taught)], taught) if taught is not None else loss * 0
            losses.append(torch.stack([loss, order, missed, loss * 0]))
        return torch.stack(losses)

    def _for_the_teacher(self, rows: Rows) -> Rows:
        """Some of the rows while it learns; all of them when it is scored."""
        return rows.first(math.ceil(self.plan.teacher_share * len(rows.ids))) if self.training else rows

    def _pair_losses(self, rows: PairRows, exits: Sequence[int]) -> Tensor:
        losses = []
        for exit, hidden in self.states(rows, exits):
            loss = self.alike[exit](hidden, rows.mask, rows.alike)
            losses.append(torch.stack([loss * 0, loss * 0, loss * 0, loss]))
        return torch.stack(losses)

    def weights(self, exits: Sequence[int]) -> Tensor:
        """What the losses of these exits count, (E, 4)."""
        kinds = torch.tensor([1.0, 1.0, self.plan.teacher_weight, 1.0])  # in the order of `LOSSES`
        return torch.tensor([self._weight(exit) for exit in exits])[:, None] * kinds

    def _weight(self, exit: int) -> float:
        return 1.0 if exit + 1 == self.backbone.depth else self.plan.early_weight

    @property
    def teacher(self) -> Teacher | None:
        return self._teacher[0]

    def kinds(self) -> list[str]:
        """The kinds of losses there are; of the others the column holds 0."""
        return [*self.kinds_of(Rows), *(self.kinds_of(PairRows) if len(self.alike) else [])]

    def kinds_of(self, rows: type[StepRows]) -> list[str]:
        """Those that a step with such rows has."""
        if issubclass(rows, PairRows):
            return ["alike"]
        asked = {"words": True, "order": len(self.heads.order) > 0, "teacher": len(self.imitation) > 0}
        return [kind for kind in LOSSES if asked.get(kind)]

    def states(self, rows: Rows | PairRows, exits: Sequence[int]) -> Iterator[tuple[int, Tensor]]:
        """(exit, what it sees) for each of these exits; no layer above the last is computed.

        With gradient equilibrium a layer gets the mean of the gradients of the exits above, not their sum.
        """
        has_types = self.backbone.config.type_vocab_size > 1  # RoBERTa's all have one
        hidden = self.backbone.embed(rows.ids, rows.types if has_types else None)
        mask = self.backbone.mask(rows.mask, hidden) if isinstance(rows, PairRows) else None  # others are full
        for layer in range(exits[-1] + 1):
            hidden = self.backbone.layer(layer, hidden, mask)
            to_exit = hidden
            if self.plan.equilibrium and self.training:
                above = sum(self._weight(exit) for exit in exits if exit > layer)
                to_exit, hidden = equilibrium(hidden, above + (layer in exits and self._weight(layer)), above)
            if layer in exits:
                yield layer, to_exit

    @staticmethod
    def at(hidden: Tensor, positions: Tensor) -> Tensor:
        """The masked places (M, H) of rows (B, T, H)."""
        flat = positions + torch.arange(len(hidden), device=hidden.device)[:, None] * hidden.shape[1]
        return hidden.flatten(0, 1).index_select(0, flat.flatten())

    def compile_parts(self) -> None:
        """Compile a layer and a head, not the whole: all layers share the code, so it takes seconds, not minutes."""
        for index in range(self.backbone.depth):
            self.backbone.layer_module(index).compile(dynamic=False)
        for head in [*self.heads.words, *self.imitation]:
            head.compile(dynamic=False)
        if self.teacher is not None:
            self.teacher.compile_parts()


def rows_asked(rows: StepRows) -> Tensor | None:
    """How many rows are asked for their order; at least 1, to divide by."""
    return None if not isinstance(rows, Rows) or rows.order is None else (rows.order != IGNORED).sum().clamp(min=1)
