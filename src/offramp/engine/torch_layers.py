"""Layers in plain torch: whatever the model has (gates, any attention), on any device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from offramp.engine.grouping import Cost, groups_of
from offramp.engine.runner import Packed
from offramp.engine.waves import Layers, padded_logits
from offramp.models import MultiExitModel


class TorchLayers(Layers):
    """The model's own layers over rows of like length, padded to the longest of their group.

    A row is (T, H). How many rows share a group is a matter of `cost`; without one, each is run alone.
    """

    def __init__(self, model: MultiExitModel, cost: Cost | None) -> None:
        self.model = model
        self.cost = cost
        self.device = model.device
        self.spans = model.objective.name == "span"

    @torch.no_grad()
    def embed(self, rows: Packed) -> list[Tensor]:
        lengths = rows.lengths.tolist()
        ids = torch.from_numpy(rows.input_ids).to(self.device).split(lengths)
        types = rows.token_type_ids
        kinds = None if types is None else torch.from_numpy(types).to(self.device).split(lengths)
        padding = int(self.model.backbone.config.pad_token_id or 0)
        hidden: list[Tensor] = list(ids)
        for picked in self._groups(lengths):
            tokens = together([ids[row] for row in picked], padding)
            embedded = self.model.backbone.embed(tokens, kinds and together([kinds[row] for row in picked]))
            for place, row in enumerate(picked):
                hidden[row] = embedded[place, : lengths[row]]
        return hidden

    @torch.no_grad()
    def layer(self, index: int, hidden: Sequence[Tensor], then: Sequence[int] = ()) -> list[Tensor]:
        after = list(hidden)
        lengths = [len(row) for row in hidden]
        for picked in self._groups(lengths):
            batch, marks = self._padded([hidden[row] for row in picked])
            mask = self.model.backbone.mask(marks, batch)
            batch, _ = self.model.layer(index, batch, mask, marks)
            for place, row in enumerate(picked):
                after[row] = batch[place, : lengths[row]]
        return after

    @torch.no_grad()
    def exit(self, exit: int, hidden: Sequence[Tensor]) -> Tensor:
        exits = self.model.exits
        if not self.spans and exits.pooling_of[exit] == ("first",):
            first = torch.stack([row[0] for row in hidden]).unsqueeze(1)  # (n, 1, H): all that the exit looks at
            return self._said(exit, first, torch.ones(first.shape[:2], device=self.device))
        if not exits.pool_padding:
            return self._said(exit, *self._padded(hidden))
        alone = [self._said(exit, *self._padded([row])) for row in hidden]  # padding would count
        return padded_logits([logits[0] for logits in alone]) if self.spans else torch.cat(alone)

    def _said(self, exit: int, batch: Tensor, marks: Tensor) -> Tensor:
        logits: Tensor = self.model.exits(exit, batch, marks).float()
        if self.spans and not self.model.exits.pool_padding:  # the smallest number of bf16 is not that of fp32
            logits = logits.masked_fill(marks.unsqueeze(-1) == 0, torch.finfo(torch.float32).min)
        return logits.cpu()

    def _groups(self, lengths: Sequence[int]) -> list[list[int]]:
        return groups_of(lengths, self.cost) if self.cost else [[row] for row in range(len(lengths))]

    def _padded(self, hidden: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Rows as a batch (n, T, H), and where it is not padding (n, T)."""
        batch = together(hidden)
        lengths = torch.tensor([len(row) for row in hidden], device=self.device)
        places = torch.arange(batch.shape[1], device=self.device)
        return batch, (places < lengths.unsqueeze(1)).long()


def together(rows: Sequence[Tensor], padding: int = 0) -> Tensor:
    """Rows as one batch, padded to the longest."""
    return pad_sequence(list(rows), batch_first=True, padding_value=padding)
