"""The official files of GLUE and ELUE: their names and columns."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class SplitFile:
    """One official file."""

    name: str
    columns: tuple[str, ...]
    text: str
    pair: str | None = None
    label: str | None = None
    header: bool = True
    """Whether the first row names the columns; if not, they are told by position."""
    skip_short: bool = False
    """Whether the official file has rows cut short, which every program leaves out."""


def _splits(train: SplitFile, test: SplitFile) -> dict[str, SplitFile]:
    return {"train": train, "dev": replace(train, name="dev.tsv"), "test": test}


def _indexed_pairs(text: str, pair: str) -> dict[str, SplitFile]:
    """QNLI, RTE and WNLI: index, two texts, label."""
    return _splits(
        SplitFile("train.tsv", ("index", text, pair, "label"), text, pair, "label"),
        SplitFile("test.tsv", ("index", text, pair), text, pair),
    )


def _elue_pairs(label: str) -> dict[str, SplitFile]:
    return _splits(
        SplitFile("train.tsv", ("sentence1", "sentence2", label), "sentence1", "sentence2", label),
        SplitFile("test.tsv", ("index", "sentence1", "sentence2"), "sentence1", "sentence2"),
    )


SENTENCE_FILES = _splits(
    SplitFile("train.tsv", ("sentence", "label"), "sentence", label="label"),
    SplitFile("test.tsv", ("index", "sentence"), "sentence"),
)
COLA_FILES = _splits(
    SplitFile("train.tsv", ("source", "label", "mark", "sentence"), "sentence", label="label", header=False),
    SplitFile("test.tsv", ("index", "sentence"), "sentence"),
)
MRPC_COLUMNS = ("#1 ID", "#2 ID", "#1 String", "#2 String")
MRPC_FILES = _splits(
    SplitFile("train.tsv", ("Quality", *MRPC_COLUMNS), "#1 String", "#2 String", "Quality"),
    SplitFile("test.tsv", ("index", *MRPC_COLUMNS), "#1 String", "#2 String"),
)
QQP_COLUMNS = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
QQP_FILES = _splits(
    SplitFile("train.tsv", QQP_COLUMNS, "question1", "question2", "is_duplicate", skip_short=True),
    SplitFile("test.tsv", ("id", "question1", "question2"), "question1", "question2"),
)
STSB_COLUMNS = ("index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2")
STSB_FILES = _splits(
    SplitFile("train.tsv", (*STSB_COLUMNS, "score"), "sentence1", "sentence2", "score"),
    SplitFile("test.tsv", STSB_COLUMNS, "sentence1", "sentence2"),
)
MNLI_COLUMNS = (
    *("index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse"),
    *("sentence1_parse", "sentence2_parse", "sentence1", "sentence2"),
)
MNLI_DEV_COLUMNS = (*MNLI_COLUMNS, "label1", "label2", "label3", "label4", "label5", "gold_label")
MNLI_FILES = {
    "train": SplitFile("train.tsv", (*MNLI_COLUMNS, "label1", "gold_label"), "sentence1", "sentence2", "gold_label"),
    "dev_matched": SplitFile("dev_matched.tsv", MNLI_DEV_COLUMNS, "sentence1", "sentence2", "gold_label"),
    "dev_mismatched": SplitFile("dev_mismatched.tsv", MNLI_DEV_COLUMNS, "sentence1", "sentence2", "gold_label"),
    "test_matched": SplitFile("test_matched.tsv", MNLI_COLUMNS, "sentence1", "sentence2"),
    "test_mismatched": SplitFile("test_mismatched.tsv", MNLI_COLUMNS, "sentence1", "sentence2"),
}
AX_FILES = {"test": SplitFile("diagnostic.tsv", ("index", "sentence1", "sentence2"), "sentence1", "sentence2")}
QNLI_FILES = _indexed_pairs("question", "sentence")
RTE_FILES = WNLI_FILES = _indexed_pairs("sentence1", "sentence2")
ELUE_STSB_FILES = _elue_pairs("score")
SNLI_FILES = SCITAIL_FILES = _elue_pairs("label")
