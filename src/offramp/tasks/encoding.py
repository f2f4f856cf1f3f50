"""Texts to tokens: truncated to a length, padded only as far as the longest row of their batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from offramp.errors import OfframpError
from offramp.interop.vocabulary import find_tokenizer
from offramp.models import MultiExitModel
from offramp.tasks.task import Examples

AT_A_TIME = 2048
LENGTH = 128
"""What all five papers truncate to, but for question answering."""


@dataclass(frozen=True)
class Row:
    """One input, as tokens, without padding."""

    input_ids: list[int]
    token_type_ids: list[int] | None = None

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True)
class TextEncoder:
    """`[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, cut to `max_length` tokens, the longer of a pair first."""

    tokenizer: Any
    max_length: int
    token_types: bool
    """Whether the backbone tells the texts of a pair apart by token types: BERT and ALBERT do, RoBERTa does not."""

    def __call__(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[Row]:
        rows: list[Row] = []
        for start in range(0, len(texts), AT_A_TIME):  # the tokenizer holds much more than it gives
            part = slice(start, start + AT_A_TIME)
            rows += self._encode(texts[part], None if pairs is None else pairs[part])
        return rows

    def _encode(self, texts: Sequence[str], pairs: Sequence[str] | None) -> list[Row]:
        encoded = self.tokenizer(
            list(texts),
            None if pairs is None else list(pairs),
            truncation="longest_first",
            max_length=self.max_length,
            return_token_type_ids=self.token_types,
            return_attention_mask=False,
        )
        types = encoded["token_type_ids"] if self.token_types else [None] * len(texts)
        return [Row(ids, kinds) for ids, kinds in zip(encoded["input_ids"], types, strict=True)]

    def examples(self, examples: Examples) -> list[Row]:
        return self(examples.texts, examples.pairs)

    def pad(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """A batch for the model, padded on the right to its longest row."""
        return pad_rows(rows, int(self.tokenizer.pad_token_id or 0))


def what_is_cut(cut: int, rows: int, max_length: int) -> str | None:
    """A word to whoever has long texts, where one of a hundred is so long that it may have lost its end."""
    if not cut or 100 * cut < rows:
        return None
    return f"{cut:,} of {rows:,} texts have {max_length} tokens or more: the rest is cut off (--max-length)"


def pad_rows(rows: Sequence[Row], pad_id: int) -> dict[str, Tensor]:
    """`input_ids`, `attention_mask` and, where the rows have them, `token_type_ids`, all (B, longest row)."""
    longest = max(map(len, rows), default=0)
    shape = (len(rows), longest)
    gaps = [longest - len(row) for row in rows]
    ids = [row.input_ids + [pad_id] * gap for row, gap in zip(rows, gaps, strict=True)]
    mask = [[1] * (longest - gap) + [0] * gap for gap in gaps]
    batch = {"input_ids": torch.tensor(ids).view(shape), "attention_mask": torch.tensor(mask).view(shape)}
    if rows and rows[0].token_type_ids is not None:
        types = [(row.token_type_ids or []) + [0] * gap for row, gap in zip(rows, gaps, strict=True)]
        batch["token_type_ids"] = torch.tensor(types).view(shape)
    return batch


def text_encoder(model: MultiExitModel, max_length: int | None = None, tokenizer: Any = None) -> TextEncoder:
    """The encoder for a model: its own tokenizer, and no more tokens than it takes.

    The tokenizer is looked for in the folder the model was loaded from; the length is, where none is given, the one the
    model was trained with, or 128.
    """
    tokenizer = find_model_tokenizer(model) if tokenizer is None else tokenizer
    length = tokens_at_most(model, max_length, LENGTH)
    return TextEncoder(tokenizer, length, token_types=model.backbone.config.type_vocab_size > 1)


def tokens_at_most(model: MultiExitModel, asked: int | None, usual: int) -> int:
    """The length asked for, or the one the model was trained with, or the usual one; no more than the model takes."""
    most = model.backbone.max_length
    if asked is not None and not 8 <= asked <= most:
        raise OfframpError(f"max length {asked}: the model takes 8 to {most} tokens")
    wanted = asked if asked is not None else model.config.max_text_tokens or usual
    return int(wanted if 8 <= wanted <= most else most)


def find_model_tokenizer(model: MultiExitModel) -> Any:
    folder = Path(model.name_or_path or "")
    tokenizer = find_tokenizer(folder, model.config.backbone_config.model_type) if model.name_or_path else None
    if tokenizer is None:
        where = f"in {folder}" if model.name_or_path else "with the model"
        raise OfframpError(f"there is no tokenizer {where}: copy the tokenizer files there, or give tokenizer=")
    return tokenizer
