"""GLUE and ELUE: which files, which columns, which labels in which order, which metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from offramp.errors import OfframpError
from offramp.tasks.official_files import (
    AX_FILES,
    COLA_FILES,
    ELUE_STSB_FILES,
    MNLI_FILES,
    MRPC_FILES,
    QNLI_FILES,
    QQP_FILES,
    RTE_FILES,
    SCITAIL_FILES,
    SENTENCE_FILES,
    SNLI_FILES,
    STSB_FILES,
    WNLI_FILES,
    SplitFile,
)


@dataclass(frozen=True)
class HubSource:
    """The same rows on the hub."""

    name: str
    config: str | None
    text: str
    pair: str | None = None
    splits: Mapping[str, str] = field(default_factory=lambda: {"train": "train", "dev": "validation", "test": "test"})
    """Our name of a split to the hub's."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The hub's text of a label to ours, where they differ."""
    cut_dev: int = 0
    """Rows to cut off the training rows for dev, where the hub has no dev split."""
    note: str = ""
    """How it differs from the official files."""


@dataclass(frozen=True)
class Benchmark:
    """One task of GLUE or ELUE."""

    suite: str
    folder: str
    """The official folder's name."""
    labels: tuple[str, ...]
    """In index order; none for regression."""
    metrics: tuple[str, ...]
    files: Mapping[str, SplitFile]
    """By split."""
    hub: HubSource
    also_in: tuple[str, ...] = ()
    """Other official folders its files may lie in."""

    @property
    def name(self) -> str:
        return f"{self.suite}/{self.folder.lower()}"

    @property
    def pair(self) -> bool:
        return self.hub.pair is not None


def find_benchmark(name: str) -> Benchmark:
    """A task by name: `sst-2`, `SST2`, `glue/sst-2`, `elue/sst-2`. Without a suite, GLUE's comes first."""
    suite, _, task = name.lower().rpartition("/")
    wanted = [bench for bench in BENCHMARKS if suite in ("", bench.suite) and plain(bench.folder) == plain(task)]
    if wanted:
        return wanted[0]
    known = [bench.name for bench in BENCHMARKS]
    near = get_close_matches(f"{suite or 'glue'}/{task}", known, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise OfframpError(f"task {name!r} is not known: {hint}There are {', '.join(known)}; own data is given as a file")


def plain(name: str) -> str:
    """A name without the differences people make: `sts-b`, `STSB` and `sts_b` are one."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _glue(config: str, text: str, pair: str | None = None, **more: Any) -> HubSource:
    return HubSource("nyu-mll/glue", config, text, pair, **more)


IMDB_HUB = HubSource(
    "stanfordnlp/imdb",
    None,
    "text",
    splits={"train": "train", "dev": "train", "test": "test"},
    cut_dev=5000,
    note="dev is cut off the 25,000 training rows here: which rows ELUE took is not known",
)
SNLI_HUB = HubSource("stanfordnlp/snli", None, "premise", "hypothesis", note="texts as written; ELUE's are tokenised")
SCITAIL_HUB = HubSource(
    "allenai/scitail",
    "tsv_format",
    "premise",
    "hypothesis",
    labels={"entails": "0", "neutral": "1"},
    note="texts as written; ELUE's are tokenised",
)
SST2_HUB = _glue("sst2", "sentence")
MRPC_HUB = _glue("mrpc", "sentence1", "sentence2")
QQP_HUB = _glue("qqp", "question1", "question2")
STSB_HUB = _glue("stsb", "sentence1", "sentence2")
MNLI_HUB = _glue("mnli", "premise", "hypothesis", splits={s: s.replace("dev", "validation") for s in MNLI_FILES})
QNLI_HUB = _glue("qnli", "question", "sentence")
RTE_HUB = _glue("rte", "sentence1", "sentence2")
WNLI_HUB = _glue("wnli", "sentence1", "sentence2")
AX_HUB = _glue("ax", "premise", "hypothesis", splits={"test": "test"})
ELUE_SST2_HUB = replace(SST2_HUB, note="GLUE's SST-2: ELUE's own selection of it is not on the hub")

BINARY = ("0", "1")
NLI = ("contradiction", "entailment", "neutral")
ENTAILMENT = ("entailment", "not_entailment")
ACCURACY = ("accuracy",)
F1 = ("f1", "accuracy", "accuracy_f1")
SPEARMAN = ("spearman", "pearson", "pearson_spearman")

BENCHMARKS = (
    Benchmark("glue", "CoLA", BINARY, ("matthews",), COLA_FILES, _glue("cola", "sentence")),
    Benchmark("glue", "SST-2", BINARY, ACCURACY, SENTENCE_FILES, SST2_HUB),
    Benchmark("glue", "MRPC", BINARY, F1, MRPC_FILES, MRPC_HUB),
    Benchmark("glue", "QQP", BINARY, F1, QQP_FILES, QQP_HUB),
    Benchmark("glue", "STS-B", (), SPEARMAN, STSB_FILES, STSB_HUB),
    Benchmark("glue", "MNLI", NLI, ACCURACY, MNLI_FILES, MNLI_HUB),
    Benchmark("glue", "QNLI", ENTAILMENT, ACCURACY, QNLI_FILES, QNLI_HUB),
    Benchmark("glue", "RTE", ENTAILMENT, ACCURACY, RTE_FILES, RTE_HUB),
    Benchmark("glue", "WNLI", BINARY, ACCURACY, WNLI_FILES, WNLI_HUB),
    Benchmark("glue", "AX", NLI, ACCURACY, AX_FILES, AX_HUB, also_in=("MNLI",)),
    Benchmark("elue", "SST-2", BINARY, ACCURACY, SENTENCE_FILES, ELUE_SST2_HUB),
    Benchmark("elue", "IMDb", BINARY, ACCURACY, SENTENCE_FILES, IMDB_HUB),
    Benchmark("elue", "MRPC", BINARY, ("accuracy_f1", "accuracy", "f1"), MRPC_FILES, MRPC_HUB),
    Benchmark("elue", "STS-B", (), ("pearson_spearman", "pearson", "spearman"), ELUE_STSB_FILES, STSB_HUB),
    Benchmark("elue", "SNLI", ("0", "1", "2"), ACCURACY, SNLI_FILES, SNLI_HUB),
    Benchmark("elue", "SciTail", BINARY, ACCURACY, SCITAIL_FILES, SCITAIL_HUB),
)
"""DeeBERT's metrics for GLUE, ElasticBERT's for ELUE; the first is the score."""
