r"""Pairs of sentences, and how alike a teacher finds them: what `offramp pretrain --pairs` learns from.

    python benchmarks/sentence_pairs.py --corpus corpus --teacher MINILM --out pairs.csv

Half of the pairs are a sentence of the corpus and one of those that the teacher finds most like it. The others are
changed (words dropped, replaced by near ones or by strange ones, parts cut off, halves swapped), each side differently:
of one sentence, of a sentence and the next one, or of any two. The answer is the teacher's cosine of the two, times
five.
"""

from __future__ import annotations

import argparse
import csv
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
SHORTEST, LONGEST = 6, 40
NEAR = 6
"""Words whose embeddings lie next to a word's, from which another is drawn for it."""
NEXT, ANY = 0.2, 0.1
"""How many pairs are of a sentence and the next one, and of two that have nothing to do with each other."""
MINED = 0.5
"""How many pairs are of a sentence and one that the teacher finds like it, neither of them changed."""
POOL, RANKS = 300_000, 512
"""Among so many sentences these are looked for, and so far down the list."""


def sentences(tokens: NDArray[np.integer[Any]], ends: tuple[int, ...], sep: int) -> list[tuple[int, int]]:
    """Where the sentences of a stream of tokens begin and end, in order."""
    cuts = 1 + np.flatnonzero(np.isin(tokens, (*ends, sep)))
    starts = np.concatenate([[0], cuts[:-1]])
    cuts = np.where(tokens[cuts - 1] == sep, cuts - 1, cuts)
    return [(int(a), int(b)) for a, b in zip(starts, cuts, strict=True) if SHORTEST <= b - a <= LONGEST]


class Changes:
    """Ways to say nearly the same, or less and less of it."""

    def __init__(self, near: Ids, seed: int) -> None:
        self.near = near
        self.draw = np.random.default_rng(seed)
        self.ways = (self.dropped, self.reworded, self.estranged, self.cut, self.turned)

    def several(self, ids: Ids, other: Ids, most: int) -> Ids:
        for way in self.draw.choice(len(self.ways), size=self.draw.integers(0, most + 1)):
            ids = self.ways[way](ids, other)
        return ids

    def _some(self, ids: Ids, most: float) -> NDArray[np.bool_]:
        return self.draw.random(len(ids)) < self.draw.random() * most

    def dropped(self, ids: Ids, other: Ids) -> Ids:
        kept = ids[~self._some(ids, 0.5)]
        return kept if len(kept) >= 3 else ids

    def reworded(self, ids: Ids, other: Ids) -> Ids:
        near = self.near[ids, self.draw.integers(0, NEAR, len(ids))]
        return np.where(self._some(ids, 0.6), near, ids)

    def estranged(self, ids: Ids, other: Ids) -> Ids:
        return np.where(self._some(ids, 0.5), self.draw.choice(other, len(ids)), ids)

    def cut(self, ids: Ids, other: Ids) -> Ids:
        size = max(3, round(len(ids) * self.draw.uniform(0.4, 0.95)))
        start = self.draw.integers(0, max(1, len(ids) - size + 1))
        return ids[start : start + size]

    def turned(self, ids: Ids, other: Ids) -> Ids:
        return np.roll(ids, self.draw.integers(1, len(ids)))


def some_pairs(tokens: Any, spans: list[tuple[int, int]], near: Ids, count: int, seed: int) -> list[tuple[Ids, Ids]]:
    """`count` pairs of changed sentences."""
    changes = Changes(near, seed)
    draw = changes.draw

    def sentence(number: int) -> Ids:
        start, end = spans[number % len(spans)]
        return np.asarray(tokens[start:end]).astype(np.int64)

    pairs = []
    for number in draw.integers(0, len(spans), count):
        first, other = sentence(number), sentence(int(draw.integers(len(spans))))
        kind = draw.random()
        if kind < NEXT:
            second, most = sentence(number + 1), 1
        elif kind < NEXT + ANY:
            second, most = other, 1
        else:
            second, most = first, 3
        pair = [changes.several(first, other, most), changes.several(second, other, most)]
        pairs.append((pair[0], pair[1]) if draw.random() < 0.5 else (pair[1], pair[0]))
    return pairs


def embedded(teacher: Any, texts: list[Ids], cls: int, sep: int, device: Any) -> Any:
    """(N, H), of length 1: the mean of the teacher's last states, as its sentence embeddings are made."""
    import torch
    from torch.nn.functional import normalize

    lengths = np.array([len(text) for text in texts])
    order = np.argsort(lengths, kind="stable")
    vectors = torch.empty(len(texts), teacher.config.hidden_size)
    for start in range(0, len(order), 4096):
        chosen = order[start : start + 4096]
        ids = np.zeros((len(chosen), lengths[chosen].max() + 2), dtype=np.int64)
        for row, number in zip(ids, chosen, strict=True):
            row[: lengths[number] + 2] = (cls, *texts[number], sep)
        mask = torch.from_numpy(np.arange(ids.shape[1]) < lengths[chosen, None] + 2).to(device)
        states = teacher(input_ids=torch.from_numpy(ids).to(device), attention_mask=mask.long()).last_hidden_state
        vectors[chosen] = normalize((states * mask[..., None]).sum(1).float(), dim=1).cpu()
    return vectors


def mined_pairs(texts: list[Ids], vectors: Any, count: int) -> list[tuple[Ids, Ids]]:
    """Each of a sentence and one of its `RANKS` nearest; nearer ones are drawn more often."""
    import torch

    draw = np.random.default_rng(0)
    chosen = draw.choice(len(texts), count, replace=count > len(texts))
    ranks = np.exp(draw.uniform(0, np.log(RANKS), count)).astype(np.int64)  # 1 to RANKS: 0 is the sentence itself
    pairs = []
    for start in range(0, count, 2048):
        part = torch.from_numpy(chosen[start : start + 2048])
        near = (vectors[part.to(vectors.device)] @ vectors.T).topk(RANKS + 1, dim=1).indices.cpu().numpy()
        others = near[np.arange(len(part)), ranks[start : start + 2048]]
        pairs += [(texts[a], texts[b]) for a, b in zip(part.tolist(), others.tolist(), strict=True)]
    return pairs


def make(arguments: argparse.Namespace) -> None:
    import torch
    from transformers import AutoModel

    from offramp.training.pretraining import prepare_corpus
    from offramp.training.pretraining.teacher import teacher_ids

    corpus = prepare_corpus((), arguments.corpus)
    words, tokens = corpus.words, np.asarray(corpus.store.train)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    teacher = AutoModel.from_pretrained(arguments.teacher, dtype=torch.float32).eval().to(device)
    own = teacher_ids(arguments.teacher, corpus.tokenizer.get_vocab(), corpus.tokenizer)
    if own.tolist() != list(range(len(own))):
        raise SystemExit("the teacher must have the corpus's own vocabulary")
    spans = sentences(tokens, words.sentence_ends, words.sep)
    near = nearest(teacher.get_input_embeddings().weight[: words.size], words.special)
    mined = round(MINED * arguments.pairs)
    share = -(-(arguments.pairs - mined) // arguments.jobs)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        jobs = [pool.submit(some_pairs, tokens, spans, near, share, seed) for seed in range(arguments.jobs)]
        pairs = [pair for job in jobs for pair in job.result()]
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        drawn = np.random.default_rng(0).permutation(len(spans))[: min(POOL, 4 * mined)]
        pool = [tokens[slice(*spans[number])].astype(np.int64) for number in drawn]
        pairs += mined_pairs(pool, embedded(teacher, pool, words.cls, words.sep, device).to(device), mined)
        first, second = (
            embedded(teacher, list(side), words.cls, words.sep, device) for side in zip(*pairs, strict=True)
        )
    alike = (5 * (first * second).sum(1)).tolist()
    decoded = [corpus.tokenizer.batch_decode([pair[side] for pair in pairs]) for side in (0, 1)]
    with arguments.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("text1", "text2", "score"))
        writer.writerows((a, b, f"{score:.4f}") for a, b, score in zip(*decoded, alike, strict=True))
    spread = np.percentile(alike, (5, 25, 50, 75, 95)).round(2).tolist()
    print(f"{len(pairs):,} pairs of {len(spans):,} sentences in {arguments.out}; 5, 25, 50, 75, 95 %: {spread}")


def nearest(embeddings: Any, special: tuple[int, ...]) -> Ids:
    """(V, NEAR): the words nearest to each, itself apart."""
    import torch
    from torch.nn.functional import normalize

    with torch.inference_mode():
        rows = normalize(embeddings.float(), dim=1)
        rows[list(special)] = 0
        found = [(part @ rows.T).topk(NEAR + 1, dim=1).indices[:, 1:].cpu() for part in rows.split(2048)]
    return torch.cat(found).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--teacher", required=True)
    parser.add_argument("--pairs", type=int, default=240_000)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--out", type=Path, required=True)
    make(parser.parse_args())


if __name__ == "__main__":
    main()
