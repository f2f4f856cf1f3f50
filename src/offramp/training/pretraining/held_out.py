"""Which documents are for training, and which are held out to be measured on."""

from __future__ import annotations

import hashlib
import logging
from array import array
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from offramp.errors import OfframpError
from offramp.training.pretraining.text_files import documents

log = logging.getLogger("offramp")

TRAIN, HELD_OUT, LEFT_OUT = range(3)
"""What becomes of a document."""
MOST = 2
"""Times the share that is wanted: a document that would bring it beyond is not held out, if there is a smaller one."""


def split(
    files: Sequence[Path], share: float, seeds: Sequence[Sequence[int]], limit: int | None = None
) -> list[npt.NDArray[np.uint8]]:
    """For each document of each file, what becomes of it; `seeds` has one for each file.

    Some documents of every file are held out, so that `share` of its characters are: see `drawn`. A document with the
    very text of one that is held out is left out of training, in whatever file it is. `limit`: the first documents of
    each file are all there are.
    """
    if not 0 <= share < 0.5:
        raise OfframpError(f"held out {share}: expected a share of the text, 0 or more and less than 0.5")
    if limit is not None and limit < 1:
        raise OfframpError(f"limit {limit}: expected 1 document of each file or more")
    splits, texts = [], []
    for file, seed in zip(files, seeds, strict=True):
        sizes, digests = _read(file, limit)
        chosen = drawn(sizes, share, seed)
        splits.append(np.where(chosen, HELD_OUT, TRAIN).astype(np.uint8))
        texts.append(digests)
        taken = sizes[chosen].sum() / sizes.sum()
        if taken > MOST * share:
            log.warning("%s: %.2g of its text is held out, not %s: it has no smaller document", file, taken, share)
    if share and not any((parts == HELD_OUT).any() for parts in splits):
        raise OfframpError(
            f"{files[0]}: nothing can be held out where no file has two documents: put blank lines between documents, "
            "or hold out 0"
        )
    held_out = np.concatenate([digests[parts == HELD_OUT] for digests, parts in zip(texts, splits, strict=True)])
    for digests, parts in zip(texts, splits, strict=True):
        parts[np.isin(digests, held_out) & (parts == TRAIN)] = LEFT_OUT
    return splits


def drawn(sizes: npt.NDArray[np.uint64], share: float, seed: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Documents of these sizes, drawn at random until there is `share` of the whole.

    One that would bring it beyond twice the share is passed over: a giant is not taken while there are others. Where
    all are too large, as in a file of novels, it is the smallest. One is always left.
    """
    chosen = np.zeros(len(sizes), bool)
    if len(sizes) < 2 or not share:
        return chosen
    wanted = share * sizes.sum()
    taken = 0
    for number in np.random.default_rng(seed).permutation(len(sizes)):
        if taken >= wanted or chosen.sum() == len(sizes) - 1:
            break
        if taken + sizes[number] <= MOST * wanted:
            chosen[number] = True
            taken += sizes[number]
    if not taken:
        chosen[sizes.argmin()] = True
    return chosen


def _read(file: Path, limit: int | None) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """The characters of each document, and a digest of its text."""
    sizes, digests = array("Q"), array("Q")
    for paragraphs in islice(documents(file), limit):
        text = "\n".join(paragraphs)
        sizes.append(len(text))
        digests.append(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big"))
    return np.array(sizes, np.uint64), np.array(digests, np.uint64)
