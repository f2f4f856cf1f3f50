"""`offramp evaluate`, as a user types it, and `evaluate` in Python."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import offramp
from offramp.evaluation import Results, Trace, evaluate
from offramp.tasks import own_task
from tests.command_line import Result
from tests.evaluation.made_questions import squad_file
from tests.generated import WORDS, reviews, reviews_file
from tests.prediction.models import model_folder, write
from tests.tiny import tiny_gated_model, tiny_model

Run = Callable[..., Result]
COLUMNS = ("--text", "review", "--label", "verdict")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder that knows what it was trained on, beside its data."""
    model = tiny_model("bert", layers=4, num_labels=2)
    model.config.id2label = {0: "good", 1: "bad"}
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "vocab.txt").write_text("\n".join(WORDS))
    data = reviews_file(tmp_path / "reviews.csv", rows=60)
    task = own_task(data, text="review", label="verdict", labels=("bad", "good"))
    record = {"task": dict(task.record), "recipe": {"name": "romebert"}}
    (tmp_path / "model" / "training.json").write_text(json.dumps(record))
    return tmp_path / "model"


@pytest.fixture
def glue(tmp_path: Path) -> Path:
    """GLUE's SST-2 and MNLI in their official layout."""
    for name, rows in (("SST-2/dev.tsv", reviews(20)), ("SST-2/train.tsv", reviews(5))):
        path = tmp_path / "glue" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{text}\t{int(verdict == 'good')}" for text, verdict in rows]
        path.write_text("sentence\tlabel\n" + "\n".join(lines) + "\n")
    columns = ["index", "promptID", "pairID", "b1", "b2", "p1", "p2", "genre", "sentence1", "sentence2"]
    columns += ["label1", "gold_label"]
    for name in ("dev_matched", "dev_mismatched"):
        path = tmp_path / "glue" / "MNLI" / f"{name}.tsv"
        path.parent.mkdir(exist_ok=True)
        cells = [[str(i), *"abcdefg", "a film", "the plot", "x", ["entailment", "neutral"][i % 2]] for i in range(6)]
        path.write_text("\n".join("\t".join(["x"] * (12 - len(line)) + line) for line in [columns, *cells]) + "\n")
    return tmp_path / "glue"


def test_a_model_on_what_it_was_trained_on(run: Run, folder: Path) -> None:
    done = run("evaluate", folder, "--policy", "entropy(0.3) | window(2)", "--no-report")
    assert done.status == 0, done.err
    assert "romebert model: reviews dev, 6 rows, 4 layers, 4 exits" in done.out
    for part in ("Each exit alone", "Policies", "Pareto front", "entropy(0.3) | window(2)", "Rows by the layer"):
        assert part in done.out
    assert "\x1b" not in done.out
    assert max(map(len, done.out.rstrip().splitlines()[:-1])) <= 80
    place = folder / "evaluation" / "dev"
    assert {path.name for path in place.iterdir()} == {"trace.npz", "results.json", "sweep.csv", "exits.csv"}
    results = Results.read(place / "results.json")
    assert (results.metric, results.rows, results.point.policy) == ("accuracy", 6, "entropy(0.3) | window(2)")
    rows = list(csv.DictReader((place / "sweep.csv").open()))
    assert len(rows) == sum(len(sweep.points) for sweep in results.sweeps) + 1
    assert sum(int(row["exits_after_1"]) for row in rows if row["policy"] == "fixed(1)") == 6
    assert len({row["policy"] for row in rows if row["pareto"] == "1"}) == len(results.pareto)
    assert len(list(csv.DictReader((place / "exits.csv").open()))) == 4


def test_plots_and_report(run: Run, folder: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("plotly")
    done = run("evaluate", folder)
    assert done.status == 0, done.err
    written = {path.name for path in (folder / "evaluation" / "dev").iterdir()}
    assert {"score_cost.png", "exits.png", "histogram.png", "report.html"} <= written


def test_the_trace_is_used_again_while_it_is_true(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "stored trace" not in run("evaluate", folder, "--no-report").err
    assert "stored trace" in run("evaluate", folder, "--no-report", "--policy", "patience(2)").err
    assert "stored trace" not in run("evaluate", folder, "--no-report", "--fresh").err
    assert "stored trace" not in run("evaluate", folder, "--no-report", "--limit", "3").err
    assert "stored trace" not in run("evaluate", folder, "--no-report").err
    assert "stored trace" not in run("evaluate", folder, "--no-report", "--precision", "bf16").err
    assert "stored trace" not in run("evaluate", folder, "--no-report").err
    data = ("--data", folder.parent / "reviews.csv")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pooling": "mean"}))
    assert "stored trace" not in run("evaluate", folder, "--no-report").err
    task = own_task(data[1], text="review", label="verdict", labels=("bad", "good"), metric="f1")
    assert evaluate(folder, task).metrics[0] == "f1"
    assert "stored trace" not in run("evaluate", folder, "--no-report").err, "other rows"
    model = offramp.load(folder)
    with torch.no_grad():
        model.exits.classifiers["0"].bias += 1
    model.save_pretrained(folder)
    assert "stored trace" not in run("evaluate", folder, "--no-report").err, "other weights"
    (folder / "evaluation" / "dev" / "trace.npz").write_bytes(b"damaged")
    assert "stored trace" not in run("evaluate", folder, "--no-report").err
    assert "stored trace" in run("evaluate", folder, "--no-report").err


def test_a_point_with_other_gates_is_not_shown_and_why(run: Run, tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = tiny_gated_model(num_labels=2)
    model.config.id2label = {0: "bad", 1: "good"}
    folder = write(model, tmp_path / "gated", None)
    (folder / "policy.json").write_text('{"policy": {"policy": "fixed", "layer": 2}, "gate_threshold": 0.5}')
    rows = ("--data", reviews_file(tmp_path / "new.csv", rows=9), *COLUMNS, "--no-report", "--json")
    done = run("evaluate", folder, *rows)
    assert done.status == 0, done.err
    assert json.loads(done.out)["point"] is None
    assert "the calibrated point is not shown: it has the gates' threshold at 0.5" in done.err
    asked = run("evaluate", folder, *rows, "--policy", "fixed(2)")
    assert (asked.status, "not shown" in asked.err) == (0, False)


def test_from_a_trace_alone(run: Run, folder: Path, tmp_path: Path) -> None:
    first = run("evaluate", folder, "--no-report", "--json")
    trace = folder / "evaluation" / "dev" / "trace.npz"
    shutil.copy(trace, tmp_path / "trace.npz")
    done = run("evaluate", "--trace", tmp_path / "trace.npz", "--no-report", "--json", "--out", tmp_path / "out")
    assert json.loads(done.out) == json.loads(first.out)
    assert (tmp_path / "out" / "results.json").is_file()


def test_own_file_is_evaluated_whole_in_the_models_label_order(run: Run, folder: Path, tmp_path: Path) -> None:
    data = reviews_file(tmp_path / "new.csv", rows=30, seed=5)
    done = run("evaluate", folder, "--data", data, *COLUMNS, "--no-report")
    assert done.status == 0, done.err
    trace = Trace.load(folder / "evaluation" / "file-new" / "trace.npz")
    assert trace.label_names == ("good", "bad")
    assert trace.labels.tolist() == [int(verdict == "bad") for _, verdict in reviews(30, seed=5)]


def test_own_file_has_the_columns_of_training_and_a_place_of_its_own(run: Run, folder: Path, tmp_path: Path) -> None:
    """A file called dev.csv does not take the place of the model's own dev evaluation."""
    assert run("evaluate", folder, "--no-report").status == 0
    before = (folder / "evaluation" / "dev" / "results.json").read_bytes()
    done = run("evaluate", folder, "--data", reviews_file(tmp_path / "dev.csv", rows=9, seed=5), "--no-report")
    assert done.status == 0, done.err
    assert (folder / "evaluation" / "dev" / "results.json").read_bytes() == before
    assert "accuracy" in Results.read(folder / "evaluation" / "file-dev" / "results.json").exits[-1].scores


def test_rows_trained_on_are_not_scored(run: Run, folder: Path, tmp_path: Path) -> None:
    """Also where the file has moved: of 60 rows, only the 6 that were cut off for dev."""
    (tmp_path / "reviews.csv").rename(tmp_path / "moved.csv")
    missing = run("evaluate", folder, "--no-report")
    assert (missing.status, missing.err.count("\n")) == (2, 1)
    assert "reviews.csv does not exist" in missing.err
    assert "moved? name it with --data" in missing.err
    done = run("evaluate", folder, "--data", tmp_path / "moved.csv", "--no-report")
    assert "only its dev rows are scored" in done.err
    assert Results.read(folder / "evaluation" / "dev" / "results.json").rows == 6


def test_rows_trained_on_in_a_folder_and_by_another_metric(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "reviews.csv").rename(tmp_path / "folder" / "train.csv")
    done = run("evaluate", folder, "--data", tmp_path / "folder", "--metric", "matthews", "--no-report", "--fresh")
    assert "only its dev rows are scored" in done.err
    results = Results.read(folder / "evaluation" / "dev" / "results.json")
    assert (results.rows, results.metric) == (6, "matthews")


def test_the_training_file_itself_is_refused(run: Run, folder: Path, tmp_path: Path) -> None:
    """Where dev rows were given apart, all of its rows were trained on."""
    record = json.loads((folder / "training.json").read_text())
    record["task"] |= {"dev": str(reviews_file(tmp_path / "own-dev.csv", 9)), "fingerprint": None}
    (folder / "training.json").write_text(json.dumps(record))
    refused = run("evaluate", folder, "--data", tmp_path / "reviews.csv", "--no-report")
    assert refused.status == 2
    assert "a score on them says nothing" in refused.err


def test_f1_is_of_the_tasks_label_whatever_the_model_calls_it(run: Run, folder: Path) -> None:
    """The model numbers good 0 and bad 1, the task the other way round: F1 is of good."""
    task = own_task(folder.parent / "reviews.csv", text="review", label="verdict", labels=("bad", "good"), metric="f1")
    trace = evaluate(folder, task)
    answers, labels = trace.logits[-1].argmax(-1), trace.labels
    right = ((answers == 0) & (labels == 0)).sum()
    by_hand = 2 * right / ((answers == 0).sum() + (labels == 0).sum())
    assert trace.scores()[-1].scores["f1"] == pytest.approx(by_hand)


def test_a_stored_trace_is_called_by_the_split_asked_for(run: Run, folder: Path, tmp_path: Path) -> None:
    """The same rows under two names."""
    rows = reviews_file(tmp_path / "rows.csv", rows=9)
    task = own_task(dev=rows, test=rows, text="review", label="verdict", labels=("bad", "good"))
    assert [evaluate(folder, task, split=split, out=tmp_path).split for split in ("dev", "test")] == ["dev", "test"]


def test_no_report_of_older_numbers_is_left(run: Run, folder: Path) -> None:
    pytest.importorskip("plotly")
    run("evaluate", folder)
    run("evaluate", folder, "--limit", "3", "--no-report")
    assert not {"report.html", "exits.png"} & {path.name for path in (folder / "evaluation" / "dev").iterdir()}


def test_without_the_drawing_libraries(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers are there all the same."""
    monkeypatch.setitem(sys.modules, "plotly", None)
    done = run("evaluate", folder)
    assert done.status == 0, done.err
    assert "Each exit alone" in done.out
    again = run("compare", folder, "--out", folder / "comparison")
    assert again.status == 0, again.err
    assert (folder / "comparison" / "comparison.csv").is_file()
    assert not list(folder.rglob("report.html"))


def test_no_labels(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_text("review\n" + "\n".join(text for text, _ in reviews(12)) + "\n")
    done = run("evaluate", folder, "--data", tmp_path / "plain.csv", "--text", "review", "--no-report")
    assert done.status == 0, done.err
    assert "has no labels: answers are compared with those of full depth" in done.out
    assert Results.read(folder / "evaluation" / "file-plain" / "results.json").exits[-1].scores == {}


def test_glue_published_and_legacy_arrays(run: Run, folder: Path, glue: Path, tmp_path: Path) -> None:
    done = run("evaluate", folder, "--task", "sst-2", "--data-dir", glue, "--published", "--no-report")
    assert done.status == 0, done.err
    assert "entropy, published" in done.out
    npy = tmp_path / "npy"
    run("evaluate", folder, "--task", "sst-2", "--data-dir", glue, "--no-report", "--legacy-npy", npy)
    assert len(np.load(npy / "each_layer.npy")) == 4


def test_mnli_is_two_evaluations(run: Run, folder: Path, glue: Path) -> None:
    tiny_model("bert", layers=2, num_labels=3).save_pretrained(folder)
    done = run("evaluate", folder, "--task", "mnli", "--data-dir", glue, "--no-report", "--json")
    assert done.status == 0, done.err
    assert [json.loads(line)["split"] for line in done.out.splitlines()] == ["dev_matched", "dev_mismatched"]
    assert {path.name for path in (folder / "evaluation").iterdir()} == {"dev_matched", "dev_mismatched"}


def test_elue_score(run: Run, folder: Path, tmp_path: Path) -> None:
    curve = {"tasks": {"reviews": {"metric": "accuracy", "points": [[0.01, 40], [0.2, 60]]}}}
    (tmp_path / "curve.json").write_text(json.dumps(curve))
    done = run("evaluate", folder, "--reference", tmp_path / "curve.json", "--no-report")
    assert "ELUE +" in done.out or "ELUE -" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a model to evaluate, or a trace"),
        (("{model}", "--trace", "x.npz"), "one of the two"),
        (("{model}/nothing",), "nothing"),
        (("{model}", "--policy", "entropie(1)"), "unknown policy 'entropie'"),
        (("{model}", "--policy", "fixed(9)"), "no exit there"),
        (("{model}", "--split", "tset"), "has no split 'tset' here: it has train, dev"),
        (("{model}", "--data-dir", "glue"), "--data-dir glue of which task?"),
        (("{model}", "--task", "sst-9"), "task 'sst-9' is not known"),
        (("{model}", "--data", "{model}/vocab.txt"), "vocab.txt"),
        (("{model}", "--precision", "int4"), "precision 'int4'"),
        (("{model}", "--device", "abacus"), "device 'abacus'"),
        (("{model}", "--max-length", "4000"), "max length 4000"),
        (("{model}", "--reference", "missing.json"), "missing.json cannot be read"),
        (("{model}", "--out", "{model}/config.json"), "config.json"),
        (("--trace", "{model}/config.json"), "is no trace of offramp evaluate"),
    ],
)
def test_bad_input(run: Run, folder: Path, arguments: tuple[str, ...], message: str) -> None:
    refused = run("evaluate", *(argument.format(model=folder) for argument in arguments), "--no-report")
    assert refused.status == 2, refused.err
    assert message in refused.err
    assert refused.err.count("\n") == 1
    assert refused.err.startswith("error: ")


def test_a_model_that_does_not_say_its_task(run: Run, folder: Path) -> None:
    (folder / "training.json").unlink()
    refused = run("evaluate", folder)
    assert refused.status == 2
    assert "does not say what it was trained on: name a task" in refused.err


def test_help_shows_examples(run: Run) -> None:
    done = run("evaluate", "--help")
    assert done.status == 0
    assert "offramp evaluate runs/sst2" in done.out


def test_in_python(folder: Path, tmp_path: Path) -> None:
    model = offramp.load(folder)
    trace = evaluate(model)
    assert not (folder / "evaluation").exists(), "an open model need not be the folder's any more"
    assert trace.point("fixed(4)").score == trace.scores()[-1].scores["accuracy"]
    kept = evaluate(folder)
    assert (folder / "evaluation" / "dev" / "trace.npz").is_file()
    assert kept.fingerprint == trace.fingerprint
    assert evaluate(folder).seconds == kept.seconds, "not run again"
    task = own_task(test=reviews_file(tmp_path / "new.csv", rows=9), text="review", labels=("bad", "good"))
    assert len(evaluate(model, task, split="test", out=tmp_path / "out", limit=4)) == 4


@pytest.fixture
def span_folder(tmp_path: Path) -> Path:
    """A model that answers questions, and says what it was trained on."""
    data = {"data": squad_file(tmp_path / "train.json"), "dev": squad_file(tmp_path / "dev.json", seed=1)}
    return model_folder(tmp_path / "spans", trained=dict(offramp.task("squad", **data).record), span=True)


def test_spans(run: Run, span_folder: Path) -> None:
    done = run("evaluate", span_folder, "--policy", "entropy(2.5) & patience(1)", "--no-report")
    assert done.status == 0, done.err
    assert "spans: squad dev, 12 questions in " in done.out
    results = Results.read(span_folder / "evaluation" / "dev" / "results.json")
    assert (results.metrics, results.rows) == (["f1", "exact"], 12)
    assert sum(results.point.exits.values()) == results.settings["windows"] > 12
    shares = re.findall(r"([\d.]+) %", done.out.split("Rows by the layer")[1])
    assert sum(map(float, shares)) == pytest.approx(100, abs=0.3)
    trace = span_folder / "evaluation" / "dev" / "trace.npz"
    again = run("evaluate", "--trace", trace, "--no-report", "--policy", "entropy(2.5) & patience(1)", "--json")
    assert json.loads(again.out)["point"]["scores"] == results.point.scores
    assert "stored trace" in run("evaluate", span_folder, "--no-report").err


def test_spans_drawn_and_compared(run: Run, span_folder: Path) -> None:
    pytest.importorskip("plotly")
    assert run("evaluate", span_folder, "--name", "one").status == 0
    assert (span_folder / "evaluation" / "dev" / "report.html").is_file()
    run("evaluate", span_folder, "--name", "two", "--out", span_folder / "other", "--no-report")
    done = run("compare", span_folder / "evaluation" / "dev", span_folder / "other", "--out", span_folder / "compared")
    assert done.status == 0, done.err
    assert "one" in done.out


def test_questions_of_another_file(run: Run, span_folder: Path, tmp_path: Path) -> None:
    done = run("evaluate", span_folder, "--data", squad_file(tmp_path / "new-v2.0.json", seed=2), "--no-report")
    assert done.status == 0, done.err
    results = Results.read(span_folder / "evaluation" / "file-new-v2.0" / "results.json")
    assert (results.task, results.split) == ("new-v2.0", "test")
    (tmp_path / "folder").mkdir()
    squad_file(tmp_path / "folder" / "dev-v2.0.json", questions=5)
    done = run("evaluate", span_folder, "--data", tmp_path / "folder", "--no-report", "--json")
    assert (json.loads(done.out)["split"], json.loads(done.out)["rows"]) == ("dev", 5)
    unlabelled = squad_file(tmp_path / "asked.json", labelled=False)
    done = run("evaluate", span_folder, "--data", unlabelled, "--no-report")
    assert "has no labels: answers are compared with those of full depth" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policy", "window(2)"), "window makes no sense for span: use entropy"),
        (("--data", "{data}/train.json"), "a score on them says nothing"),
        (("--data", "{data}/dev.json", "--text", "context"), "text is for own data with labels"),
        (("--data", "{data}/spans/config.json"), "config.json"),
        (("--data", "{data}/missing.json"), "missing.json"),
        (("--legacy-npy", "{data}/npy"), "they need a labelled classification task"),
        (("--max-length", "4000"), "max length 4000"),
    ],
)
def test_bad_input_on_spans(run: Run, span_folder: Path, arguments: tuple[str, ...], message: str) -> None:
    place = span_folder.parent
    refused = run("evaluate", span_folder, *(argument.format(data=place) for argument in arguments), "--no-report")
    assert refused.status == 2, refused.err
    [said] = refused.err.split("error: ")[1].splitlines()
    assert message in said
