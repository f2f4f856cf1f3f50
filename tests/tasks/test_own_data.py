"""A user's own data: columns found, labels mapped, a dev split cut off; nothing dropped, nothing guessed in silence."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.errors import OfframpError
from offramp.tasks import own_task, task
from offramp.tasks.dev_split import cut_dev
from offramp.tasks.metrics import score


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def labelled(path: Path, labels: list[Any]) -> Path:
    return write(path, [{"text": f"text {i}", "label": label} for i, label in enumerate(labels)])


LABELS: dict[str, tuple[list[Any], tuple[str, ...], list[int]]] = {
    "strings": (["good", "bad", "good"], ("bad", "good"), [1, 0, 1]),
    "ints": ([10, 9, 2, 9], ("2", "9", "10"), [2, 1, 0, 1]),
    "ints as text": (["10", "9", "-2", "9"], ("-2", "9", "10"), [2, 1, 0, 1]),
    "signed": (["+1", "-1", "+1"], ("-1", "+1"), [1, 0, 1]),
    "bools": ([True, False, True], ("false", "true"), [1, 0, 1]),
    "whole floats": ([1.0, 0.0, "1.0", 0], ("0", "1"), [1, 0, 1, 0]),
    "text with spaces": ([" yes ", "no", "yes"], ("no", "yes"), [1, 0, 1]),
    "the same number twice": (["1", "01", "001", "1"], ("001", "01", "1"), [2, 1, 0, 2]),
    "a number of many digits": (["9" * 5000, "2", "-1"], ("-1", "2", "9" * 5000), [2, 1, 0]),
    "minus zero": ([-0.0, 0, 1.0, "-0.0"], ("0", "1"), [0, 0, 1, 0]),
    "words for what is no number": (["nan", "inf", "dal"], ("dal", "inf", "nan"), [2, 1, 0]),
    "numbers and texts": (["1", "2.5", "many", "1"], ("1", "2.5", "many"), [0, 1, 2, 0]),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels_of_any_kind(case: str, tmp_path: Path) -> None:
    written, labels, numbers = LABELS[case]
    made = task(data=labelled(tmp_path / "mine.jsonl", written), dev_share=0)
    assert (made.name, made.labels, made.metrics) == ("mine", labels, ("accuracy", "macro_f1"))
    assert made.split("train").labels == numbers
    assert made.splits == ("train",)


def test_regression(tmp_path: Path) -> None:
    path = labelled(tmp_path / "mine.jsonl", [0.5, 1, 2.25, 3])
    made = task(data=path, dev_share=0)
    assert (made.labels, made.kind, made.metrics) == ((), "regression", ("spearman", "pearson"))
    assert made.split("train").labels == [0.5, 1.0, 2.25, 3.0]
    assert task(data=path, regression=False, dev_share=0).labels == ("0.5", "1", "2.25", "3")
    ints = labelled(tmp_path / "ints.jsonl", [1, 2, 3])
    assert task(data=ints, regression=True, dev_share=0).split("train").labels == [1.0, 2.0, 3.0]


def test_given_labels_keep_their_order(tmp_path: Path) -> None:
    path = labelled(tmp_path / "mine.jsonl", ["a", "b", "a"])
    made = task(data=path, labels=["c", "b", "a"], dev_share=0)
    assert made.labels == ("c", "b", "a")
    assert made.split("train").labels == [2, 1, 2]
    with pytest.raises(OfframpError, match=r"mine\.jsonl:2: label 'b': expected one of a, c"):
        task(data=path, labels=["a", "c"], dev_share=0).split("train")


COLUMNS = {
    ("text", "label"): ("text", None, "label"),
    ("Review", "Sentiment", "id"): ("Review", None, "Sentiment"),
    ("premise", "hypothesis", "label"): ("premise", "hypothesis", "label"),
    ("question", "sentence", "label"): ("question", "sentence", "label"),
    ("sentence1", "sentence2", "score"): ("sentence1", "sentence2", "score"),
}


@pytest.mark.parametrize("columns", COLUMNS)
def test_columns_found_by_name(columns: tuple[str, ...], tmp_path: Path) -> None:
    text, pair, label = COLUMNS[columns]
    rows = [[f"{column} {i % 20 if column == label else i}" for column in columns] for i in range(40)]
    (tmp_path / "mine.tsv").write_text("\n".join("\t".join(row) for row in [columns, *rows]))
    made = task(data=tmp_path / "mine.tsv")
    assert (made.record["text"], made.record["text_pair"], made.record["label"]) == (text, pair, label)
    assert made.pair == (pair is not None)
    rows_of_train = made.split("train")
    assert rows_of_train.texts[0].startswith(text)
    assert rows_of_train.pairs is None or rows_of_train.pairs[0].startswith(str(pair))


def test_columns_by_name_given(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", [{"a": f"a{i}", "b": f"b{i}", "c": i % 2} for i in range(10)])
    made = task(data=path, text="a", text_pair="b", label="c")
    assert made.pair
    assert made.split("train").pairs == [text.replace("a", "b") for text in made.split("train").texts]
    assert not task(data=path, text="a", label="c").pair


BAD_COLUMNS = [
    (("x", "label"), {}, "no column is named like a text: it has 'x', 'label'; name the column with --text"),
    (("text", "review", "label"), {}, "'text', 'review' could each be the text; name the column with --text"),
    (("text", "x"), {}, "no column is named like a label: it has 'text', 'x'; name the column with --label"),
    (("text", "label", "score"), {}, "'label', 'score' could each be the label; name the column with --label"),
    (("text", "label"), {"text": "tekst"}, "there is no column 'tekst': it has 'text', 'label'; did you mean 'text'?"),
    (("text", "label"), {"label": "zzz"}, "there is no column 'zzz': it has 'text', 'label'; name one with --label"),
    (
        ("text", "label"),
        {"text_pair": "zzz"},
        "there is no column 'zzz': it has 'text', 'label'; name one with --text-pair",
    ),
    (("text", "label"), {"text": "label"}, "column 'label' cannot be the text, for it is the label"),
    (("a", "label"), {"text": "a", "text_pair": "a"}, "column 'a' cannot be the text, for it is the second text"),
    (
        ("text;label",),
        {},
        "no column is named like a label: it has 'text;label': it seems to be separated by semicolons",
    ),
]


@pytest.mark.parametrize(("columns", "options", "message"), BAD_COLUMNS)
def test_columns_in_doubt(columns: tuple[str, ...], options: dict[str, str], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", [dict.fromkeys(columns, "x")])
    with pytest.raises(OfframpError) as raised:
        task(data=path, **options)
    assert str(raised.value).startswith(f"{path}: {message}")


BAD_ROWS = {
    "empty text": ([{"text": "a", "label": 1}, {"text": " ", "label": 0}], "mine.jsonl:2: 'text' is empty"),
    "no text": ([{"text": "a", "label": 1}, {"label": 0}], "mine.jsonl:2: 'text' is empty"),
    "list for a text": ([{"text": ["a"], "label": 1}], "mine.jsonl:1: 'text' is a list: expected a text"),
    "half a character": ([{"text": "a\ud800", "label": 1}], "mine.jsonl:1: 'text' holds half a surrogate pair"),
    "half a character in a label": (
        [{"text": "a", "label": "x\ud800"}, {"text": "b", "label": "y"}],
        "mine.jsonl:1: 'label' holds half a surrogate pair",
    ),
    "nan among decimals": (
        [{"text": "a", "label": "0.5"}, {"text": "b", "label": "NaN"}],
        "mine.jsonl:2: label 'NaN' among numbers: expected a number",
    ),
    "infinity among whole numbers": (
        [{"text": "a", "label": 1}, {"text": "b", "label": 0}, {"text": "c", "label": "-inf"}],
        "mine.jsonl:3: label '-inf' among numbers: expected a number (--classification: it is a label)",
    ),
    "no label": ([{"text": "a", "label": 1}, {"text": "b", "label": None}], "mine.jsonl:2: no 'label'"),
    "empty label": ([{"text": "a", "label": ""}, {"text": "b", "label": "x"}], "mine.jsonl:1: no 'label'"),
    "list for a label": ([{"text": "a", "label": [1]}], "mine.jsonl:1: 'label' is a list: expected a label"),
    "one label": ([{"text": "a", "label": 1}] * 3, "mine.jsonl: column 'label' holds '1' alone: expected two"),
    "each its own": ([{"text": "a", "label": f"{i}"} for i in range(99)], "mine.jsonl: column 'label' holds 99 labels"),
    "too few for dev": ([{"text": "a", "label": i} for i in range(2)], "1 dev rows cannot be cut off 2 rows"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows(case: str, tmp_path: Path) -> None:
    rows, message = BAD_ROWS[case]
    with pytest.raises(OfframpError) as raised:
        task(data=write(tmp_path / "mine.jsonl", rows))
    assert str(raised.value).removeprefix(f"{tmp_path}/").startswith(message)


def test_no_training_rows(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("text,label\n")
    with pytest.raises(OfframpError, match=r"mine\.csv holds no rows"):
        task(data=tmp_path / "mine.csv")
    labelled(tmp_path / "test.jsonl", ["a", "b"])
    with pytest.raises(OfframpError, match="no training rows, and no labels given"):
        task(data=tmp_path)
    with pytest.raises(OfframpError, match="no data: give a file"):
        own_task()


def test_scoring_a_file_with_a_model_s_labels(tmp_path: Path) -> None:
    path = labelled(tmp_path / "new.jsonl", ["b", "a", "b"])
    made = task(dev=path, labels=["a", "b"])
    assert (made.splits, made.split("dev").labels) == (("dev",), [1, 0, 1])
    bare = write(tmp_path / "bare.jsonl", [{"text": "x"}])
    assert task(test=bare, labels=["a", "b"]).split("test").labels is None


@pytest.mark.parametrize("dev", ["dev.csv", "validation.csv", "val.csv"])
def test_a_folder(dev: str, tmp_path: Path) -> None:
    for name, rows in (("train.csv", "a,1\nb,0\n"), (dev, "c,1\n"), ("test.csv", "d,\ne,\n"), ("notes.txt", "")):
        (tmp_path / name).write_text("text,label\n" + rows)
    made = task(data=tmp_path)
    assert made.splits == ("train", "dev", "test")
    assert [made.split(split).texts for split in made.splits] == [["a", "b"], ["c"], ["d", "e"]]
    assert made.split("test").labels is None
    assert task(**made.record).split("dev").texts == ["c"]
    (tmp_path / "test.csv").write_text("text,label\nd,\ne,1\n")
    with pytest.raises(OfframpError, match=r"test\.csv:2: no 'label'"):
        made.split("test")
    (tmp_path / "train.tsv").touch()
    with pytest.raises(OfframpError, match=r"train\.csv and train\.tsv could each be train"):
        task(data=tmp_path)


def test_places_that_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").touch()
    with pytest.raises(OfframpError, match=r"expected train\.csv.*it has mine\.csv"):
        task(data=tmp_path)
    with pytest.raises(OfframpError, match=r"mime\.csv does not exist: did you mean .*mine\.csv"):
        task(data=tmp_path / "mime.csv")
    with pytest.raises(OfframpError, match=r"dev\.csv does not exist"):
        task(data=labelled(tmp_path / "a.jsonl", [1, 0]), dev=tmp_path / "dev.csv")


def test_the_dev_split_is_the_same_everywhere(tmp_path: Path) -> None:
    path = labelled(tmp_path / "mine.jsonl", ["a"] * 60 + ["b"] * 30 + ["c"] * 10)
    made = task(data=path, dev_share=0.2)
    train, dev = made.split("train"), made.split("dev")
    assert Counter(dev.labels) == {0: 12, 1: 6, 2: 2}
    assert not set(train.texts) & set(dev.texts)
    assert len(train) + len(dev) == 100
    assert dev.texts[:6] == [f"text {i}" for i in (4, 7, 16, 17, 18, 19)]
    assert task(data=path, dev_share=0.2, split_seed=1).split("dev").texts != dev.texts


def test_the_same_rows_in_another_format_give_the_same_split(tmp_path: Path) -> None:
    made = task(data=labelled(tmp_path / "mine.jsonl", [0, 1] * 10))
    lines = (f"text {i},{i % 2}" for i in range(20))
    (tmp_path / "mine.csv").write_text("\n".join(["text,label", *lines]))
    other = task(**{**made.record, "data": tmp_path / "mine.csv"})
    assert other.split("dev").texts == made.split("dev").texts


@pytest.mark.parametrize("pair", [False, True])
def test_rows_of_the_same_text_stay_together(pair: bool, tmp_path: Path) -> None:
    """What dev asks was not learnt by heart. Another second text makes another row."""
    rows = [{"text": f"text {i % 50}", "label": i % 2} for i in range(200)]
    rows = [{**row, "text_pair": f"{i % 100}"} for i, row in enumerate(rows)] if pair else rows
    made = task(data=write(tmp_path / "mine.jsonl", rows))
    train, dev = (list(zip(part.texts, part.pairs or part.texts, strict=True)) for part in map(made.split, made.splits))
    assert not set(train) & set(dev)
    assert (len(train), len(dev)) == (180, 20)
    assert set(Counter(dev).values()) == {2 if pair else 4}
    assert task(**json.loads(json.dumps(made.record))).split("dev") == made.split("dev")


def test_what_earlier_versions_cut_row_by_row_stays_cut_so(tmp_path: Path) -> None:
    """A model that was trained on a file in which texts are twice is scored on the rows it was not trained on."""
    path = write(tmp_path / "mine.jsonl", [{"text": f"text {i % 50}", "label": i % 2} for i in range(200)])
    made = task(data=path)
    earlier = task(**{**made.record, "fingerprint": "5b41ee04bf7dc4fa"})
    assert earlier.record["fingerprint"] == "5b41ee04bf7dc4fa"
    assert earlier.split("dev").texts[:6] == [f"text {i}" for i in (6, 8, 26, 33, 43, 33)]
    assert earlier.split("dev") != made.split("dev")


def test_rows_are_told_apart_cell_by_cell(tmp_path: Path) -> None:
    prints = []
    for name, texts in (("a", ["ab", "c", "x"]), ("b", ["a", "bc", "x"])):
        rows = [{"text": text, "label": label} for text, label in zip(texts, "yny", strict=True)]
        prints.append(task(data=write(tmp_path / f"{name}.jsonl", rows)).record["fingerprint"])
    assert prints[0] != prints[1]


def test_made_again(tmp_path: Path) -> None:
    path = labelled(tmp_path / "mine.jsonl", ["x", "y"] * 10)
    made = task(data=path, metric="matthews", name="verdicts", split_seed=3)
    record = json.loads(json.dumps(made.record))
    again = task(**record)
    assert again == made
    assert again.metrics == ("matthews", "accuracy", "macro_f1")
    assert again.split("dev") == made.split("dev")
    assert dict(again.record) == record
    labelled(path, ["x", "y"] * 9 + ["y", "x"])
    with pytest.raises(OfframpError, match=r"mine\.jsonl has changed since its dev rows were cut off"):
        task(**record)
    dev = labelled(tmp_path / "dev.jsonl", ["y", "x"])
    assert task(**{**record, "dev": dev}).split("dev").labels == [1, 0]


@pytest.mark.parametrize(
    ("labels", "metric"), [(["a", "b", "c"], "f1"), (["a", "b"], "pearson"), ([0.5, 1.5], "accuracy"), ([0, 1], "x")]
)
def test_metrics_that_do_not_fit(labels: list[Any], metric: str, tmp_path: Path) -> None:
    with pytest.raises(OfframpError, match=f"metric '{metric}': expected one of"):
        task(data=labelled(tmp_path / "mine.jsonl", labels * 3), metric=metric)


@pytest.mark.parametrize("share", [-0.1, 1, 2])
def test_bad_shares(share: float, tmp_path: Path) -> None:
    with pytest.raises(OfframpError, match="dev share"):
        task(data=labelled(tmp_path / "mine.jsonl", [0, 1]), dev_share=share)


def test_labels_and_regression(tmp_path: Path) -> None:
    with pytest.raises(OfframpError, match="expected one of them"):
        task(data=labelled(tmp_path / "mine.jsonl", [0, 1]), labels=["0", "1"], regression=True)


@given(st.lists(st.sampled_from("abc"), min_size=4, max_size=200), st.floats(0.01, 0.5), st.integers(0, 5))
def test_cut_dev(labels: list[str], share: float, seed: int) -> None:
    size = max(1, round(share * len(labels)))
    if size > len(labels) - len(set(labels)):
        return
    train, dev = cut_dev(labels, len(labels), size, seed)
    assert sorted(train + dev) == list(range(len(labels)))
    assert len(dev) == size
    assert {labels[i] for i in train} == set(labels)
    movable = len(labels) - len(set(labels))
    for label, count in Counter(labels).items():
        in_dev = sum(labels[i] == label for i in dev)
        assert abs(in_dev - size * (count - 1) / movable) <= 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30)), min_size=4, max_size=100), st.integers(0, 5))
def test_cut_dev_by_texts(rows: list[tuple[str, int]], seed: int) -> None:
    """No text is in both, and every label in training, also where one text has several."""
    labels, texts = [label for label, _ in rows], [text for _, text in rows]
    if len(set(texts)) < 2 * len(set(labels)):
        return
    train, dev = cut_dev(labels, len(rows), max(1, len(rows) // 4), seed, texts)
    assert dev
    assert sorted(train + dev) == list(range(len(rows)))
    assert not {texts[i] for i in train} & {texts[i] for i in dev}
    assert {labels[i] for i in train} == set(labels)


def test_scores_of_a_task_fit_its_labels(tmp_path: Path) -> None:
    made = task(data=labelled(tmp_path / "mine.jsonl", ["a", "b", "c"] * 10))
    rows = made.split("dev")
    assert [score(metric, rows.labels, rows.labels) for metric in made.metrics] == [1.0, 1.0]
