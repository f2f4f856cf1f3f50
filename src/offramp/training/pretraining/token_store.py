"""A corpus as token ids in flat files, made once and then only mapped into memory."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from offramp.errors import OfframpError, one_line
from offramp.training.plan import write_json
from offramp.training.pretraining.held_out import HELD_OUT, LEFT_OUT, TRAIN, split
from offramp.training.pretraining.text_files import documents
from offramp.whole_folder import whole_folder

log = logging.getLogger("offramp")

SIGN = "tokens.json"
PARTS = {TRAIN: "train", HELD_OUT: "held_out"}
BATCH = 2**20
"""Characters that are encoded at a time: enough to keep every core busy, and little beside a model."""


@dataclass(frozen=True)
class TokenStore:
    """Documents end to end, the separator after each, and what they were made from."""

    train: npt.NDArray[Any] = field(repr=False)
    held_out: npt.NDArray[Any] = field(repr=False)
    made_from: Mapping[str, Any] = field(repr=False)
    """`files` (their names, sizes, digests, documents, tokens), `vocabulary` (a digest), `held_out`, `seed`, `limit`;
    and `dtype`, `separator`, `tokens`."""


class Paragraph(NamedTuple):
    text: str
    part: int
    last: bool
    """It ends a document."""


def tokenise(
    files: Sequence[Path],
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    held_out: float = 0.005,
    seed: int = 0,
    limit: int | None = None,
) -> TokenStore:
    """Write the tokens of files into a folder; one that holds the same already is opened, one with others is refused.

    A share of each file is held out, in whole documents (`held_out.split`): which ones depends on the seed and the
    file's bytes, not on the other files. `limit`: no more than the first documents of each file.
    """
    wanted: dict[str, Any] = {
        "files": [_about_file(file) for file in files],
        "vocabulary": vocabulary_digest(tokenizer),
        "held_out": held_out,
        "seed": seed,
        "limit": limit,
    }
    if _is_there(folder, wanted):
        return open_store(folder)
    encoder, separator = _encoder(tokenizer), tokenizer.sep_token_id
    dtype = np.dtype(np.uint16 if len(tokenizer) <= 2**16 else np.uint32)
    seeds = [(seed, int(about["digest"], 16)) for about in wanted["files"]]
    splits = split(files, held_out, seeds, limit)
    with whole_folder(folder) as new:
        with ExitStack() as opened:
            outs = {part: opened.enter_context((new / f"{name}.bin").open("wb")) for part, name in PARTS.items()}
            for file, about, parts in zip(files, wanted["files"], splits, strict=True):
                tokens = dict.fromkeys(PARTS.values(), 0)
                for part, ids in _encoded(_paragraphs(file, parts), encoder, separator):
                    np.array(ids, dtype).tofile(outs[part])
                    tokens[PARTS[part]] += len(ids)
                left_out = {"left_out": int((parts == LEFT_OUT).sum())}
                about["documents"] = {name: int((parts == part).sum()) for part, name in PARTS.items()} | left_out
                about["tokens"] = tokens
                log.info("%s: %d tokens to train on, %d held out", file.name, tokens["train"], tokens["held_out"])
        totals = {name: sum(about["tokens"][name] for about in wanted["files"]) for name in PARTS.values()}
        write_json(new / SIGN, {**wanted, "dtype": dtype.name, "separator": separator, "tokens": totals})
    return open_store(folder)


def open_store(folder: Path) -> TokenStore:
    """The tokens that were written into a folder."""
    path = folder / SIGN
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        train, held_out = (
            _mapped(folder / f"{name}.bin", about["dtype"], about["tokens"][name]) for name in PARTS.values()
        )
        _files(about)
    except OSError as error:
        raise OfframpError(f"{folder} holds no tokens ({error.filename}: {error.strerror})") from error
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, OfframpError):
            raise
        raise OfframpError(f"{path} is not as it was written ({one_line(error)}): remove the folder") from error
    return TokenStore(train, held_out, about)


def vocabulary_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Of all that decides which ids a text gets."""
    says = json.loads(_encoder(tokenizer).to_str())
    deciding = [says[key] for key in ("normalizer", "pre_tokenizer", "model", "added_tokens")]
    return hashlib.blake2b(json.dumps(deciding, sort_keys=True).encode(), digest_size=16).hexdigest()


def _about_file(file: Path) -> dict[str, Any]:
    mark = hashlib.blake2b(digest_size=16)
    try:
        with file.open("rb") as opened:
            while block := opened.read(2**20):
                mark.update(block)
    except OSError as error:
        raise OfframpError(f"{file} cannot be read ({error.strerror})") from error
    return {"name": file.name, "size": file.stat().st_size, "digest": mark.hexdigest()}


def _is_there(folder: Path, wanted: Mapping[str, Any]) -> bool:
    if not folder.exists():
        return False
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / SIGN).is_file()):
        raise OfframpError(f"{folder} is there and holds no tokens: name another folder for them")
    if not (folder / SIGN).is_file():
        return False
    there = open_store(folder).made_from
    for key, value in wanted.items():
        if value != (_files(there) if key == "files" else there.get(key)):
            what = {"files": "of other files", "vocabulary": "of another vocabulary"}.get(
                key, f"with {key} {there.get(key)}"
            )
            raise OfframpError(f"{folder} holds tokens {what}: remove it, or name another folder")
    return True


def _files(about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What tells the files apart that the tokens are of."""
    return [{key: file[key] for key in ("name", "size", "digest")} for file in about["files"]]


def _mapped(path: Path, dtype: str, count: int) -> npt.NDArray[Any]:
    if path.stat().st_size != count * np.dtype(dtype).itemsize:
        raise OfframpError(f"{path} is cut short, or of another run: expected {count} tokens; remove {path.parent}")
    return np.memmap(path, dtype, "r") if count else np.zeros(0, dtype)  # an empty file cannot be mapped


def _encoder(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """A copy of the tokenizer that cuts and pads nothing, and reads `[SEP]` in a text as the text that it is."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer) or tokenizer.sep_token_id is None:
        raise OfframpError(f"{tokenizer.name_or_path}: expected a fast tokenizer (tokenizer.json) that has a separator")
    encoder = Tokenizer.from_str(backend.to_str())
    encoder.no_truncation()
    encoder.no_padding()
    encoder.encode_special_tokens = True
    return encoder


def _paragraphs(file: Path, parts: npt.NDArray[np.uint8]) -> Iterator[Paragraph]:
    for part, paragraphs in zip(parts.tolist(), documents(file), strict=False):  # no more than were split
        if part != LEFT_OUT:
            *others, last = paragraphs
            yield from (Paragraph(text, part, False) for text in others)
            yield Paragraph(last, part, True)


def _encoded(paragraphs: Iterable[Paragraph], encoder: Tokenizer, separator: int) -> Iterator[tuple[int, list[int]]]:
    """The ids of many paragraphs at a time, for each part."""
    for batch in _batches(paragraphs):
        ids: dict[int, list[int]] = {}
        encodings = encoder.encode_batch_fast([each.text for each in batch], add_special_tokens=False)
        for each, encoding in zip(batch, encodings, strict=True):
            of_part = ids.setdefault(each.part, [])
            of_part += encoding.ids
            if each.last:
                of_part.append(separator)
        yield from ids.items()


def _batches(paragraphs: Iterable[Paragraph]) -> Iterator[list[Paragraph]]:
    batch: list[Paragraph] = []
    size = 0
    for each in paragraphs:
        batch.append(each)
        size += len(each.text)
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
