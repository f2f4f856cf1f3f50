"""SQuAD files and tokenizers made in a moment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from offramp.tasks.squad import Question, Questions

WORDS = ("the", "river", "rhine", "flows", "north", "from", "basel", "to", "cologne", "in", "1200", "km", ",", ".", "?")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def bert_tokenizer() -> Any:
    letters = [chr(code) for code in range(ord("0"), ord("z") + 1)]
    pieces = dict.fromkeys([*SPECIAL, *WORDS, *letters, *(f"##{letter}" for letter in letters)])
    made = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return _with_specials(made, "[CLS] $A [SEP]", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")


def roberta_tokenizer() -> Any:
    alphabet = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    made = Tokenizer(models.BPE({piece: i for i, piece in enumerate(alphabet)}, merges=[], unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True)
    made.decoder = decoders.ByteLevel()
    return _with_specials(made, "[CLS] $A [SEP]", "[CLS]:0 $A:0 [SEP]:0 [SEP]:0 $B:0 [SEP]:0")


def albert_tokenizer() -> Any:
    """SentencePiece's way: a blank belongs to the word after it."""
    letters = [chr(code) for code in range(33, 127)]
    pieces = [(piece, 0.0) for piece in SPECIAL]
    pieces += [("▁", -3.0), *((f"▁{word}", -1.0) for word in WORDS), *((letter, -4.0) for letter in letters)]
    made = Tokenizer(models.Unigram(pieces, unk_id=1))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    return _with_specials(made, "[CLS] $A [SEP]", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")


TOKENIZERS = {"bert": bert_tokenizer, "roberta": roberta_tokenizer, "albert": albert_tokenizer}


def _with_specials(made: Tokenizer, single: str, pair: str) -> Any:
    made.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


def asked(id: str, context: str, *answers: str, question: str = "from where ?") -> Question:
    """A question; without answers, one that has none."""
    return Question(id, question, context, answers, tuple(map(context.find, answers)), impossible=not answers)


def questions(*made: Question, version2: bool = False) -> Questions:
    return Questions(list(made), version2, "made.json", labelled=True)


def entry(id: Any, *answers: tuple[str, int], question: str = "From where?", **more: Any) -> dict[str, Any]:
    """A question as SQuAD's JSON has it."""
    given = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": id, "question": question, "answers": given, **more}


def document(context: str, *entries: dict[str, Any], version: str = "1.1") -> dict[str, Any]:
    return {"version": version, "data": [{"title": "T", "paragraphs": [{"context": context, "qas": list(entries)}]}]}


def squad_file(path: Path, *entries: dict[str, Any], context: str = "north of basel", version: str = "1.1") -> Path:
    path.write_text(json.dumps(document(context, *entries, version=version)))
    return path


def random_logits(windows: Sequence[Any], exits: int, seed: int, coarse: bool) -> list[np.ndarray[Any, Any]]:
    """(exits, T, 2) for each window; coarse ones are often equal."""
    draw = np.random.default_rng(seed)
    made = [draw.normal(scale=3, size=(exits, len(window.row), 2)).astype(np.float32) for window in windows]
    return [np.round(logits / 3) for logits in made] if coarse else made
