"""A folder with all that the pages speak of: small models and files by the names they use."""

from __future__ import annotations

import csv
import random
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import offramp
from offramp.evaluation.writing import write_results
from offramp.quickstart.reviews import make_reviews
from offramp.recipes import ElasticBERT, Schedule
from tests.evaluation.made_questions import squad_file
from tests.fine_tuned import NAMES, answer, fine_tuned
from tests.generated import backbone_folder, reviews
from tests.originals import elasticbert_release, elbert_start, google_albert, original_folder
from tests.pages.reading import ROOT

BACKBONES = {
    "bert-base-uncased": "bert",
    "roberta-base": "roberta",
    "albert-base-v2": "albert",
    "offramp-mini": "bert",
    "sentence-transformers/all-MiniLM-L6-v2": "bert",
}
TRAINED = "trained"
"""A model that was trained on reviews; a page finds it by the names it uses."""
PARTS = {"train": 1200, "dev": 600, "held_out": 600, "new": 600, "reviews": 300}
"""Files of reviews, and how many rows they have. No text is in two of them."""
WRONG = 0.04
"""Share of the labels."""


def furnish(home: Path) -> Path:
    """Everything but the models that pages train themselves."""
    made = make_reviews(3000, seed=7)
    words = sorted({word for one in made for word in re.findall(r"\w+|[^\w\s]", one.review.lower())})
    for name, family in BACKBONES.items():
        backbone_folder(home / name, family, neurons=64, words=words)
    labelled_files(home)
    train(home)
    fine_tuned(home / "models" / "sentiment", id2label=dict(enumerate(NAMES)))
    fine_tuned(home / "models" / "stars", labels=1)
    own_columns(home)
    benchmarks(home)
    checkpoints(home)
    (home / "corpus").mkdir()
    lines = "\n\n".join(" ".join(text for text, _ in reviews(6, seed)) for seed in range(300))
    for place in (home / "corpus" / "reviews.txt", home / "reviews.txt"):
        place.write_text(lines)
    (home / "texts.txt").write_text("a good film\nthe bad plot\n")
    (home / "examples").symlink_to(ROOT / "examples")
    return home


def labelled_files(home: Path) -> None:
    draw = random.Random(0)
    other = dict(zip(NAMES, reversed(NAMES), strict=True))
    rows = list(dict(reviews(6000)).items())
    for name, size in PARTS.items():
        part, rows = rows[:size], rows[size:]
        assert len(part) == size
        labelled = ((text, other[verdict] if draw.random() < WRONG else verdict) for text, verdict in part)
        write(home / f"{name}.csv", ("review", "verdict"), labelled)


def train(home: Path) -> None:
    """The model in TRAINED, evaluated and calibrated."""
    task = offramp.task(data=home / "train.csv", dev=home / "dev.csv", text="review", label="verdict")
    recipe = ElasticBERT(schedule=Schedule(learning_rate=3e-3, epochs=4))
    model = home / TRAINED
    offramp.train(home / "bert-base-uncased", task, model, recipe, load={"pooling": "mean"}, quiet=True)
    write_results(offramp.evaluate(model).results(), model / "evaluation" / "dev", report=False)
    offramp.calibrate(model, max_loss=0.05)
    shutil.copytree(model, home / "offramp-mini-sst2")


def own_columns(home: Path) -> None:
    """The same reviews with other columns: as stars, with names to be filled in, with numbers of rows."""
    rows = reviews(800)
    write(
        home / "stars.csv",
        ("review", "stars"),
        ((text, answer(text, verdict, labels=1)) for text, verdict in dict(rows).items()),
    )
    write(home / "yours.csv", ("TEXT", "LABEL"), rows[:60])
    (home / "incoming" / "2024").mkdir(parents=True)
    write(
        home / "incoming" / "2024" / "january.csv",
        ("id", "review"),
        ((i, text) for i, (text, _) in enumerate(rows[:30])),
    )


def write(path: Path, header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


GLUE = {
    "glue/SST-2": ("sentence\tlabel", "a good film\t{}", ("0", "1")),
    "glue/RTE": (
        "index\tsentence1\tsentence2\tlabel",
        "0\ta good film\ta bad film\t{}",
        ("entailment", "not_entailment"),
    ),
    "glue/MRPC": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "{}\t1\t2\ta good film\ta bad film", ("0", "1")),
    "elue/SciTail": ("sentence1\tsentence2\tlabel", "a good film\ta bad film\t{}", ("0", "1")),
}
"""Header, row and labels of tasks, as their authors write them."""
TESTS = {
    "glue/SST-2": "index\tsentence\n0\ta good film\n",
    "glue/MRPC": "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\ta good film\ta bad film\n",
    "elue/SciTail": "index\tsentence1\tsentence2\n0\ta good film\ta bad film\n",
}


def benchmarks(home: Path) -> None:
    """Some rows of GLUE, ELUE and SQuAD."""
    for task, (header, row, labels) in GLUE.items():
        (home / task).mkdir(parents=True)
        for split in ("train", "dev"):
            rows = [row.format(labels[i % 2]) for i in range(12)]
            (home / task / f"{split}.tsv").write_text("\n".join([header, *rows]) + "\n")
    for task, text in TESTS.items():
        (home / task / "test.tsv").write_text(text)
    (home / "squad").mkdir()
    for seed, split in enumerate(("train", "dev")):
        for version in ("1.1", "2.0"):
            path = home / "squad" / f"{split}-v{version}.json"
            squad_file(path, questions=9, version2=version == "2.0", words=20, seed=seed)


def checkpoints(home: Path) -> None:
    """What original programs wrote or start from, in miniature."""
    original_folder(home / "saved_models" / "bert" / "MRPC" / "two_stage", "deebert_bert")
    original_folder(home / "saved_models" / "elbert", "elbert_c2", cnt_thres=2)
    for name, eps in {"base": 1e-8, "large": 1e-8, "chinese-base": 1e-12}.items():
        elasticbert_release(home / "fnlp" / f"elasticbert-{name}", layer_norm_eps=eps)
    elbert_start(home / "elbert_large")
    google_albert(home / "albert_large")
