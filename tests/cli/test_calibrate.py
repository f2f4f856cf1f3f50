"""`offramp calibrate`, as a user types it, and what `predict`, `bench` and `evaluate` make of what it leaves."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import offramp
from offramp.calibration.certificate import read_certificate
from offramp.tasks import own_task
from tests.calibration.made_model import NAMES, labelled_file, settled_model
from tests.command_line import Result
from tests.evaluation.made_questions import squad_file
from tests.exiting_models import growing_sure
from tests.generated import reviews, reviews_file
from tests.prediction.models import model_folder, write
from tests.tiny import tiny_model

Run = Callable[..., Result]
LOSS = ("--max-loss", "0.05")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model that knows what it was trained on, and rows that it has not seen."""
    home = tmp_path_factory.mktemp("made")
    settled_model(home / "model")
    train = labelled_file(home / "train.csv", home / "model", 300, seed=1)
    dev = labelled_file(home / "dev.csv", home / "model", 500, seed=2)
    labelled_file(home / "new.csv", home / "model", 1000, seed=3)
    task = own_task(train, dev=dev, text="review", label="verdict", labels=NAMES)
    (home / "model" / "training.json").write_text(json.dumps({"task": dict(task.record)}))
    return home


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "home")
    return tmp_path / "home"


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(done: Result, *words: str) -> None:
    """One line that holds the words, on the error output; nothing else."""
    lines = [line for line in done.err.splitlines() if "stored trace" not in line]
    assert (done.status, done.out, len(lines)) == (2, "", 1), done.err
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize("data", [(), ("--data", "new.csv")], ids=["dev rows", "own file"])
def test_table_plot_and_certificate(
    run: Run, home: Path, data: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    done = run("calibrate", "model", *LOSS, *data)
    assert done.status == 0, done.err
    rows, place = (1000, "file-new") if data else (500, "dev")
    for part in ("model: at most 5 % of accuracy is lost, with 95 % confidence", "full depth", "speed-up (layers)"):
        assert part in done.out
    assert max(map(len, done.out.splitlines()[1:-4])) <= 80
    found = read_certificate(home / "model")
    assert (found.promise.limit, found.data["rows"], found.model) == (0.05, rows, _digest(home / "model"))
    assert found.found["risk"] <= found.found["bound"] <= 0.05
    assert found.found["cost"] < 0.9
    assert f"policy: {found.policy}" in done.out
    assert (home / "model" / "evaluation" / place / "trace.npz").is_file()
    assert (home / "model" / "calibration" / "plot.png").stat().st_size > 10_000
    assert "model: policy.json, calibration/plot.png" in done.out


def _digest(folder: Path) -> str:
    from offramp.models.weights_digest import weights_digest

    return weights_digest(offramp.load(folder))


def test_json_is_the_certificate_and_seeds_give_it_again(run: Run, home: Path) -> None:
    first = run("calibrate", home / "model", *LOSS, "--seed", "3", "--json")
    assert (first.status, first.out.count("\n")) == (0, 1), first.err
    assert json.loads(first.out) == json.loads((home / "model" / "policy.json").read_text())
    assert run("calibrate", home / "model", *LOSS, "--seed", "3", "--json").out == first.out


def test_dry_run_leaves_everything_as_it_was(run: Run, home: Path) -> None:
    before = files_in(home)
    done = run("calibrate", home / "model", *LOSS, "--dry-run")
    assert done.status == 0, done.err
    assert "nothing was written" in done.out
    assert files_in(home) == before


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--consistency", "--max-loss", "0.05"), "at most 5 % of the answers differ from full depth's"),
        (("--max-cost", "0.7"), "at most 70 % of full depth is computed"),
        (("--max-cost", "0.7", "--flops"), "at most 70 % of full depth is computed"),
        (
            ("--max-loss", "0.3", "--method", "bonferroni", "--bound", "betting", "--confidence", "0.9"),
            "with 90 % conf",
        ),
        (("--max-loss", "0.3", "--bound", "hoeffding-bentkus", "--consistency"), "at most 30 % of the answers differ"),
        ((*LOSS, "--method", "expectation"), "on average"),
        ((*LOSS, "--policy", "entropy(0.05)"), "policy: entropy(0.05)"),
        (("--max-loss", "0.1", "--metric", "f1", "--data", "new.csv"), "at most 10 % of F1 is lost"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_promises(run: Run, home: Path, options: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    done = run("calibrate", "model", *options)
    assert done.status == 0, done.err
    assert text in done.out
    found = read_certificate(home / "model")
    assert found.found["bound"] <= found.promise.limit
    assert found.policy == offramp.Engine("model").policy


def test_without_labels(run: Run, home: Path) -> None:
    with (home / "texts.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["review"], *([text] for text, _ in reviews(600, seed=8))])
    refused(run("calibrate", home / "model", "--data", home / "texts.csv", *LOSS), "no labels", "--consistency")
    done = run("calibrate", home / "model", "--data", home / "texts.csv", *LOSS, "--consistency")
    assert done.status == 0, done.err
    assert read_certificate(home / "model").found["score"] is None


def test_the_policy_is_used_from_then_on(run: Run, home: Path) -> None:
    model, data = home / "model", home / "new.csv"
    assert "under" not in run("predict", model, data, "--text", "review").err
    assert run("calibrate", model, *LOSS).status == 0
    found = read_certificate(model)
    own = run("predict", model, data, "--text", "review")
    assert own.err.strip() == f"under {found.policy}: {found.promise}"
    asked = run("predict", model, data, "--text", "review", "--policy", str(found.policy))
    assert asked.err == ""
    answers = [[json.loads(line) for line in done.out.splitlines()] for done in (own, asked)]
    for one, other in zip(*answers, strict=True):
        assert (one["label"], one["exit_layer"]) == (other["label"], other["exit_layer"])
        assert one["score"] == pytest.approx(other["score"], abs=1e-4)
    assert len({one["exit_layer"] for one in answers[0]}) > 1, "rows leave early"
    evaluated = run("evaluate", model, "--no-report", "--json")
    assert str(found.promise) in evaluated.err
    assert json.loads(evaluated.out)["point"]["policy"] == str(found.policy)


def test_bench_measures_it(run: Run, home: Path) -> None:
    assert run("calibrate", home / "model", *LOSS).status == 0
    quick = ("--rows", "8", "--batch-sizes", "8", "--seconds", "0", "--backend", "torch", "--json")
    done = run("bench", home / "model", *quick)
    found = read_certificate(home / "model")
    assert done.status == 0, done.err
    assert json.loads(done.out)["policy"] == str(found.policy)
    assert f"under {found.policy}: {found.promise}" in done.err


def test_other_weights_are_not_what_was_promised_of(run: Run, home: Path) -> None:
    assert run("calibrate", home / "model", *LOSS).status == 0
    model = offramp.load(home / "model")
    with torch.no_grad():
        next(model.exits.classifiers.parameters()).add_(0.01)
    model.save_pretrained(home / "model")
    done = run("predict", home / "model", "a fine film")
    assert done.status == 0
    assert "calibrated for other weights" in done.err
    assert "at most" not in done.err


@pytest.mark.parametrize("times", [1, 4])
def test_rows_that_are_there_again_count_once(
    run: Run, home: Path, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Four copies of a row would be taken for four witnesses."""
    header, *rows = (home / "new.csv").read_text().splitlines()
    texts = dict.fromkeys(rows)
    again = home / "again.csv"
    again.write_text("\n".join([header, *times * list(texts)]) + "\n")
    done = run("calibrate", home / "model", *LOSS, "--data", again)
    assert done.status == 0, done.err
    found = read_certificate(home / "model")
    assert (found.data["rows"], sum(found.reference["exits"].values())) == (len(texts), len(texts))
    said = f"{(times - 1) * len(texts):,} of the {times * len(texts):,} rows of {again} are there more than once"
    assert (said in caplog.text) == (times > 1)
    caplog.clear()
    limited = run("calibrate", home / "model", *LOSS, "--data", again, "--limit", str(len(texts)))
    assert (limited.status, "more than once" in caplog.text) == (0, False)


@pytest.mark.parametrize("moved", [True, False])
def test_rows_that_may_have_been_trained_on(
    run: Run, made: Path, home: Path, moved: bool, caplog: pytest.LogCaptureFixture
) -> None:
    about = home / "model" / "training.json"
    about.write_text(about.read_text().replace(str(made), str(home)))
    if moved:
        (home / "train.csv").rename(home / "elsewhere.csv")
    done = run("calibrate", home / "model", *LOSS, "--data", home / "new.csv")
    assert done.status == 0, done.err
    said = f"cannot tell whether {home / 'new.csv'} holds rows that the model was trained on: {home / 'train.csv'}"
    assert (said in caplog.text) == moved


def test_a_policy_without_a_certificate_promises_nothing(run: Run, home: Path) -> None:
    (home / "model" / "policy.json").write_text('{"policy": "entropy", "threshold": 0.1}')
    assert "not certified" in run("predict", home / "model", "a fine film").err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--max-loss", "0"), ("limit of 0", "between 0 and 1")),
        (("--max-loss", "1"), ("limit of 1",)),
        (("--max-loss=-1",), ("limit of -1",)),
        (("--max-loss", "nan"), ("limit of nan",)),
        (("--max-cost", "0"), ("limit of 0",)),
        ((*LOSS, "--confidence", "1"), ("confidence of 1", "0.95")),
        ((*LOSS, "--confidence", "1.5"), ("confidence of 1.5",)),
        ((*LOSS, "--confidence", "0"), ("confidence of 0",)),
        ((), ("--max-loss 0.01", "--max-cost 0.5")),
        ((*LOSS, "--max-cost", "0.5"), ("one of the two",)),
        ((*LOSS, "--flops"), ("--flops goes with --max-cost",)),
        (("--max-cost", "0.5", "--consistency"), ("--consistency goes with --max-loss",)),
        ((*LOSS, "--tolerance", "0.1"), ("--tolerance goes with --consistency",)),
        ((*LOSS, "--method", "magic"), ("fixed_sequence", "bonferroni", "expectation")),
        ((*LOSS, "--bound", "magic"), ("exact", "hoeffding")),
        (("--max-cost", "0.5", "--bound", "magic"), ("exact", "hoeffding")),
        ((*LOSS, "--policy", "entropie(0.1)"), ("entropie",)),
        ((*LOSS, "--split", "nope"), ("no split 'nope'",)),
        ((*LOSS, "--metric", "matthews"), ("matthews cannot be promised", "--metric accuracy")),
        ((*LOSS, "--metric", "macro_f1"), ("macro_f1 cannot be promised", "--consistency")),
        ((*LOSS, "--metric", "pearson"), ("pearson cannot be promised",)),
        ((*LOSS, "--metric", "beauty"), ("no test of the loss of beauty",)),
        ((*LOSS, "--data", "missing.csv"), ("missing.csv",)),
        ((*LOSS, "--data", "empty.csv"), ("empty.csv",)),
        ((*LOSS, "--data", "header.csv"), ("header.csv",)),
        ((*LOSS, "--data", "train.csv"), ("trained on",)),
        ((*LOSS, "--data", "copy.csv"), ("what the model was trained on",)),
        ((*LOSS, "--data", "overlap.csv"), ("300 of the 400 rows", "leave them out")),
        ((*LOSS, "--data", "good.csv"), ("same label",)),
        ((*LOSS, "--data", "leak.csv"), ("right on all 300 rows", "--consistency")),
        (("--max-loss", "0.01", "--data", "few.csv"), ("30 rows cannot support this promise", "rows like these")),
    ],
    ids=lambda value: " ".join(value) or "neither" if isinstance(value, tuple) else "",
)
def test_refusals(
    run: Run, home: Path, options: tuple[str, ...], words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, and a policy that was there stays as it was."""
    monkeypatch.chdir(home)
    (home / "model" / "policy.json").write_text('{"policy": "entropy", "threshold": 0.1}')
    before = {name: kept for name, kept in files_in(home).items() if "evaluation" not in name}
    lines = (home / "train.csv").read_text().splitlines()
    new = (home / "new.csv").read_text().splitlines()
    made = {"empty.csv": [], "header.csv": lines[:1], "copy.csv": lines, "overlap.csv": lines + new[1:101]}
    made |= {"good.csv": [new[0], *(line for line in new[1:] if line.endswith(",good"))], "few.csv": new[:31]}
    named = next((option for option in options if option in made), None)
    if named:
        (home / named).write_text("".join(f"{line}\n" for line in made[named]))
    elif "leak.csv" in options:
        labelled_file(home / "leak.csv", home / "model", 300, seed=5, wrong=0)
    refused(run("calibrate", "model", *options), *words)
    after = files_in(home)
    assert {name: after[name] for name in before} == before
    assert "model/calibration/plot.png" not in after


def test_models_that_cannot_be_calibrated(run: Run, home: Path, tmp_path: Path) -> None:
    refused(run("calibrate", "someone/bert", *LOSS), "someone/bert is no folder")
    refused(run("calibrate", home / "new.csv", *LOSS), "new.csv is no folder")
    one = write(tiny_model(layers=2, num_labels=2, exit_layers=[2]), tmp_path / "one", None)
    data = ("--data", home / "new.csv", "--text", "review", "--label", "verdict")
    refused(run("calibrate", one, *LOSS, "--consistency", *data[:4]), "one exit")


def test_nan_logits(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a layer in half precision gives them."""
    broken = offramp.evaluate(home / "model")
    broken.logits[1, :3] = float("nan")
    monkeypatch.setattr("offramp.calibration.run.evaluate", lambda *_, **__: broken)
    refused(run("calibrate", home / "model", *LOSS), "NaN", "3 of the rows")


def test_numbers_need_a_tolerance(run: Run, tmp_path: Path) -> None:
    settled_model(tmp_path / "model", labels=1)
    data = tmp_path / "stars.csv"
    with data.open("w", newline="") as file:
        rows = [[text, number % 5] for number, (text, _) in enumerate(reviews(400, seed=6))]
        csv.writer(file).writerows([["review", "stars"], *rows])
    command = ("calibrate", tmp_path / "model", "--data", data, "--text", "review", "--label", "stars")
    refused(run(*command, *LOSS), "cannot be promised", "--consistency --tolerance")
    refused(run(*command, *LOSS, "--metric", "spearman"), "cannot be promised", "--consistency --tolerance")
    refused(run(*command, *LOSS, "--consistency"), "--tolerance")
    done = run(*command, *LOSS, "--consistency", "--tolerance", "2")
    assert done.status == 0, done.err
    assert read_certificate(tmp_path / "model").promise.loss.tolerance == 2


def test_spans_by_exact_match(run: Run, tmp_path: Path) -> None:
    model = write(growing_sure("bert"), tmp_path / "model", None)
    data = squad_file(tmp_path / "dev.json", questions=200, words=20)
    done = run("calibrate", model, "--data", data, "--max-loss", "0.3")
    assert done.status == 0, done.err
    assert "exact match lost" in done.out
    refused(run("calibrate", model, "--data", data, "--max-loss", "0.3", "--metric", "f1"), "--metric exact")


@pytest.mark.parametrize("flops", [(), ("--flops",)], ids=["layers", "operations"])
def test_the_cost_of_questions_is_a_mean_over_them(run: Run, tmp_path: Path, flops: tuple[str, ...]) -> None:
    """How many windows a question can have is not known, so nothing can be promised of all windows together."""
    model = write(growing_sure("bert"), tmp_path / "model", None)
    data = squad_file(tmp_path / "dev.json", questions=200, words=20)
    done = run("calibrate", model, "--data", data, "--max-cost", "0.95", *flops)
    assert done.status == 0, done.err
    assert "at most 95 % of full depth is computed for a question, on the mean over questions, with 95 %" in done.out


def test_f1_of_three_labels_is_refused_before_the_model_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = ("bad", "good", "so-so")
    model = model_folder(tmp_path / "model", labels)
    data = reviews_file(tmp_path / "new.csv", rows=9)
    task = own_task(test=data, text="review", label="verdict", labels=labels)
    monkeypatch.setattr("offramp.evaluation.trace.one_pass", None)  # called when it is computed
    with pytest.raises(offramp.OfframpError, match="F1 can be promised of two labels, not of 3: use --metric accuracy"):
        offramp.calibrate(model, task, split="test", max_loss=0.05, metric="f1")


def test_ctrl_c_leaves_the_old_policy(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("calibrate", home / "model", *LOSS).status == 0
    before = (home / "model" / "policy.json").read_bytes()

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("offramp.calibration.run.calibrate_trace", stopped)
    done = run("calibrate", home / "model", "--max-loss", "0.1")
    assert (done.status, "stopped" in done.err) == (130, True)
    assert (home / "model" / "policy.json").read_bytes() == before


def test_without_matplotlib_there_is_a_policy_and_no_plot(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    done = run("calibrate", home / "model", *LOSS)
    assert done.status == 0, done.err
    assert not (home / "model" / "calibration").exists()
    assert read_certificate(home / "model").promise.limit == 0.05


@pytest.mark.parametrize(
    ("command", "place", "otherwise"),
    [
        (("calibrate", *LOSS), "", "the policy is written there; copy the model, or say --dry-run"),
        (("evaluate",), "/evaluation/dev", "name another with --out"),
    ],
)
def test_where_nothing_can_be_written_nothing_is_computed(
    run: Run, home: Path, command: tuple[str, ...], place: str, otherwise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offramp.whole_folder.os.access", lambda folder, mode: mode != os.W_OK)
    monkeypatch.setattr("offramp.evaluation.trace.one_pass", None)  # called when it is computed
    refused(run(command[0], home / "model", *command[1:]), f"{home / 'model'}{place} cannot be written to: {otherwise}")
