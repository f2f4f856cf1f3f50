"""`offramp train`, as a user types it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError

import offramp
from offramp.tasks.benchmarks import find_benchmark
from tests.command_line import Result
from tests.generated import backbone_folder, reviews_file
from tests.training.test_run import StopAt

Run = Callable[..., Result]
QUICK = ("--epochs", "1", "--batch-size", "16", "--learning-rate", "5e-3", "--quiet")
MODEL_FOLDER = {
    *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"),
    *("README.md", "training.json"),
}


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return backbone_folder(tmp_path_factory.mktemp("backbone"), layers=2)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return reviews_file(tmp_path / "reviews.csv", 60)


def train(run: Run, backbone: Path, data: Path, out: Path, *options: str | Path) -> Result:
    own = ("--data", data, "--label", "verdict", "--backbone", backbone, "--out", out)
    return run("train", *own, *QUICK, *options)


def test_train(run: Run, backbone: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "reviews"
    own = ("--data", data, "--text", "review", "--label", "verdict", "--backbone", backbone, "--out", out)
    schedule = ("--epochs", "2", "--batch-size", "16", "--learning-rate", "5e-3", "--warmup", "0.2", "--clip", "0")
    more = ("--recipe", "romebert", "--set", "gamma=0.5", "--exit-layers", "1,2", "--seed", "7", "--max-length", "16")
    done = run("train", *own, *schedule, *more)
    assert done.status == 0, done.err
    assert done.out == ""
    assert f"{out}: trained. Next: offramp evaluate {out}" in done.err
    assert done.err.count("dev score of each exit") == 2
    assert {path.name for path in out.iterdir()} == MODEL_FOLDER
    record = json.loads((out / "training.json").read_text())
    assert (record["seed"], record["max_length"], record["recipe"]["gamma"]) == (7, 16, 0.5)
    wanted = {"epochs": 2, "batch_size": 16, "learning_rate": 5e-3, "warmup": 0.2, "clip": 0}
    assert wanted.items() <= record["recipe"]["schedule"].items()
    assert offramp.load(out).exits.layers == (1, 2)


def test_texts_that_are_cut_are_counted(run: Run, backbone: Path, data: Path, tmp_path: Path) -> None:
    own = ("--data", data, "--label", "verdict", "--backbone", backbone, "--epochs", "1")
    short = run("train", *own, "--out", tmp_path / "short", "--max-length", "8")
    assert re.search(r"\d+ of \d+ texts have 8 tokens or more: the rest is cut off \(--max-length\)", short.err)
    assert "cut off" not in run("train", *own, "--out", tmp_path / "long").err


def test_a_label_of_one_row_is_named(run: Run, backbone: Path, data: Path, tmp_path: Path) -> None:
    lines = data.read_text().splitlines()
    slip = tmp_path / "slip.csv"
    slip.write_text("\n".join([*lines, lines[1].rpartition(",")[0] + ",positve"]) + "\n")
    own = ("--label", "verdict", "--backbone", backbone, "--epochs", "1", "--dev-share", "0.1")
    said = "labels of fewer than 3 training rows: 'positve' (1); is one written wrongly?"
    assert said in run("train", "--data", slip, *own, "--out", tmp_path / "slip").err
    assert "labels" not in run("train", "--data", data, *own, "--out", tmp_path / "right").err


def test_labels_that_differ_in_case_alone_are_named(run: Run, backbone: Path, data: Path, tmp_path: Path) -> None:
    head, *rows = data.read_text().splitlines()
    label = rows[0].rpartition(",")[2]
    other = [row.replace(f",{label}", f",{label.upper()}") if place % 2 else row for place, row in enumerate(rows)]
    (tmp_path / "mixed.csv").write_text("\n".join([head, *other]) + "\n")
    own = ("--label", "verdict", "--backbone", backbone, "--epochs", "1", "--dev-share", "0.1")
    said = run("train", "--data", tmp_path / "mixed.csv", *own, "--out", tmp_path / "mixed").err
    alike = "/".join(repr(name) for name in sorted((label, label.upper())))
    assert f"labels that differ in upper and lower case alone: {alike}; each is learnt apart" in said


def test_a_disk_that_fills_is_one_line(
    run: Run, backbone: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: Any, **__: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", no_room)
    monkeypatch.setattr("transformers.modeling_utils.safe_save_file", no_room)
    own = ("--label", "verdict", "--backbone", backbone, "--epochs", "1")
    found = run("train", "--data", data, *own, "--out", tmp_path / "out")
    assert found.status == 2
    assert found.err.splitlines()[-1].startswith(f"error: {tmp_path / 'out'} could not be written (Error while")


def test_gates(run: Run, backbone: Path, data: Path, tmp_path: Path) -> None:
    options = ("--recipe", "ebert+elasticbert", "--target-flops", "0.7", "--gate-block", "8", "--keep", "best")
    own = ("--data", data, "--label", "verdict", "--backbone", backbone, "--out", tmp_path / "gated")
    done = run("train", *own, *options, "--epochs", "1", "--batch-size", "16")
    assert done.status == 0, done.err
    record = json.loads((tmp_path / "gated" / "training.json").read_text())
    kept = offramp.evaluate(tmp_path / "gated").gate_report().ratio
    assert record["dev"]["flops"] == pytest.approx(kept, abs=1e-4)
    assert f"Gates keep {kept:.2f} of the FLOPs on dev (target 0.7)" in done.err
    assert "gated-joint: the last weights are kept" in done.err
    assert "chosen on these rows" not in (tmp_path / "gated" / "README.md").read_text()


def test_resuming(run: Run, backbone: Path, data: Path, tmp_path: Path) -> None:
    """No other arguments are needed; a finished run is left as it is."""
    out = tmp_path / "model"
    refused = run("train", "--resume", "--out", out)
    assert refused.status == 2
    assert refused.err.startswith(f"error: there is no training to resume in {out}")
    assert train(run, backbone, data, out).status == 0
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    done = run("train", "--resume", "--out", out)
    assert (done.status, done.err) == (0, f"{out}: this training is finished\n")
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before


def test_resuming_with_other_settings_is_refused(run: Run, tmp_path: Path) -> None:
    """They would be lost in silence."""
    (tmp_path / "model" / "checkpoints").mkdir(parents=True)
    (tmp_path / "model" / "checkpoints" / "plan.json").write_text("{}")
    for option in ("--epochs", "--seed"):
        refused = run("train", "--resume", "--out", tmp_path / "model", option, "3")
        assert refused.status == 2
        assert f"leave out {option}" in refused.err


def test_a_run_that_diverges_is_no_model(
    run: Run, backbone: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "model"
    assert train(run, backbone, data, out).status == 0
    before = (out / "model.safetensors").read_bytes()
    monkeypatch.setattr("offramp.recipes.elasticbert.scale_gradient", lambda hidden, _: hidden * float("nan"))
    failed = train(run, backbone, data, out, "--overwrite")
    assert failed.status == 2
    assert "joint: training diverged, the weights are not numbers: lower the learning rate" in failed.err
    assert (out / "model.safetensors").read_bytes() == before


def test_overwriting(run: Run, backbone: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    assert train(run, backbone, data, out).status == 0
    before = (out / "model.safetensors").read_bytes()
    refused = train(run, backbone, data, out, "--seed", "1")
    assert refused.status == 2
    assert f"{out} exists and is not empty: name another folder, or say --overwrite" in refused.err
    assert (out / "model.safetensors").read_bytes() == before
    assert train(run, backbone, data, out, "--seed", "1", "--overwrite").status == 0
    assert (out / "model.safetensors").read_bytes() != before


@pytest.mark.parametrize("recipe", ["plain", "deebert"])
def test_tensorboard(run: Run, backbone: Path, data: Path, tmp_path: Path, recipe: str) -> None:
    """Its files stay, beside the model, a folder for each phase."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = tmp_path / "model"
    done = train(run, backbone, data, out, "--recipe", recipe, "--report-to", "tensorboard")
    assert done.status == 0, done.err
    assert {path.name for path in out.iterdir()} == {*MODEL_FOLDER, "logs"}
    record = json.loads((out / "training.json").read_text())
    phases = [f"{number}-{phase['name']}" for number, phase in enumerate(record["phases"], start=1)]
    assert sorted(path.name for path in (out / "logs").iterdir()) == phases
    for phase, told in zip(phases, record["phases"], strict=True):
        events = EventAccumulator(str(out / "logs" / phase))
        events.Reload()
        scores = [event.value for event in events.Scalars("eval/exit_2")]
        assert scores == pytest.approx([look["exit_2"] for look in told["history"]])


WANDB = """
import json
from types import SimpleNamespace

run, config = None, {}


def tell(**told):
    with open("told.jsonl", "a") as file:
        print(json.dumps(told), file=file)


def init(project, name):
    global run
    run = SimpleNamespace(id="1", name=name, url="", summary={}, _label=lambda **_: None)
    tell(begins=name, project=project)


def log(values):
    tell(step=values["train/global_step"])


def finish(exit_code=None):
    global run
    run = None
    tell(ends=exit_code)
"""


@pytest.fixture
def wandb_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """What a stand-in for Weights & Biases was told so far."""
    for file, text in {"__init__": WANDB, "sdk/lib/config_util": "class ConfigError(Exception): ...\n"}.items():
        (tmp_path / "wandb" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "wandb" / f"{file}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    yield lambda: [json.loads(line) for line in (tmp_path / "told.jsonl").read_text().splitlines()]
    for module in [module for module in sys.modules if module.split(".")[0] == "wandb"]:
        del sys.modules[module]


TWO_PHASES = ("--recipe", "deebert", "--max-steps", "20", "--report-to", "wandb")


@pytest.mark.parametrize(("options", "name"), [((), "model"), (("--run-name", "my run"), "my run")])
def test_one_wandb_run_for_all_phases(
    run: Run, backbone: Path, data: Path, tmp_path: Path, wandb_is_told: Any, options: tuple[str, ...], name: str
) -> None:
    """Its steps go on from phase to phase."""
    done = train(run, backbone, data, tmp_path / "model", *TWO_PHASES, *options)
    assert done.status == 0, done.err
    first, *told, last = wandb_is_told()
    assert first == {"begins": name, "project": "huggingface"}
    assert last == {"ends": 0}
    steps = [one["step"] for one in told]
    assert steps == sorted(steps)
    assert {10, 20, 30, 40} <= set(steps)


def test_a_resumed_run_tells_wandb_how_many_steps_went_before(
    run: Run, backbone: Path, data: Path, tmp_path: Path, wandb_is_told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        StopAt(patch, "exits", 5)
        train(run, backbone, data, tmp_path / "model", *TWO_PHASES)
    stopped = len(wandb_is_told())
    assert wandb_is_told()[-1] == {"ends": 1}
    done = run("train", "--resume", "--out", tmp_path / "model", "--report-to", "wandb", "--run-name", "again")
    assert done.status == 0, done.err
    first, *told, last = wandb_is_told()[stopped:]
    assert (first["begins"], last["ends"]) == ("again", 0)
    steps = [one["step"] for one in told]
    assert steps == sorted(steps)
    assert (steps[0] > 20, steps[-1]) == (True, 40)


FILES: dict[str, bytes] = {
    "empty.csv": b"",
    "header.csv": b"review,verdict\n",
    "short.csv": b"review,verdict\na good film,good\ncut short\n",
    "latin.csv": b"review,verdict\na good film,good\ncaf\xe9,bad\n",
    "one-label.csv": b"review,verdict\na good film,good\nthe plot,good\n",
    "no-label.csv": b"review,verdict\na good film,good\nthe plot,\n",
    "dev.csv": b"review,verdict\na good film,so-so\n",
    "notes.txt": b"a good film\n",
}
OWN = ("--backbone", "{backbone}", "--label", "verdict")
WRONG: list[tuple[tuple[str, ...], str]] = [
    ((), "name a backbone (--backbone) and a task (--task with --data-dir, or --data)"),
    (("--data", "{good}", "--label", "verdict"), "name a backbone (--backbone) and a task"),
    (("--backbone", "{backbone}"), "name a backbone (--backbone) and a task"),
    ((*OWN, "--data", "{data}/missing.csv"), "missing.csv does not exist"),
    ((*OWN, "--data", "{data}/empty.csv"), "empty.csv is empty"),
    ((*OWN, "--data", "{data}/header.csv"), "header.csv holds no rows"),
    ((*OWN, "--data", "{data}/short.csv"), "short.csv:3: row cut short, 1 of 2 cells"),
    ((*OWN, "--data", "{data}/latin.csv"), "latin.csv:3: not UTF-8 (byte 0xe9 at 4)"),
    ((*OWN, "--data", "{data}/one-label.csv"), "holds 'good' alone: expected two labels or more"),
    ((*OWN, "--data", "{data}/no-label.csv"), "no-label.csv:3: no 'verdict': expected a label in every row"),
    ((*OWN, "--data", "{data}/notes.txt"), "notes.txt: cannot tell its format by its name"),
    ((*OWN, "--data", "{good}", "--text", "reviw"), "there is no column 'reviw'"),
    (("--backbone", "{backbone}", "--data", "{good}", "--label", "verdct"), "did you mean 'verdict'?"),
    ((*OWN, "--data", "{good}", "--metric", "bleu"), "metric 'bleu': expected one of"),
    ((*OWN, "--data", "{good}", "--set", "gamma"), "--set gamma: write NAME=VALUE"),
    ((*OWN, "--data", "{good}", "--set", "gama=1", "--recipe", "romebert"), "romebert has no setting 'gama'"),
    ((*OWN, "--data", "{good}", "--recipe", "rombert"), "unknown recipe 'rombert'"),
    ((*OWN, "--data", "{good}", "--target-flops", "0.5"), "go with gates: --recipe ebert"),
    ((*OWN, "--data", "{good}", "--recipe", "ebert", "--target-flops", "0"), "a share of all, more than 0"),
    ((*OWN, "--data", "{good}", "--recipe", "ebert", "--target-flops", "0.001"), "predictors cost"),
    ((*OWN, "--data", "{good}", "--recipe", "ebert", "--gate-block", "7"), "does not divide the 24 neurons"),
    (
        (*OWN, "--data", "{good}", "--recipe", "ebert", "--target-flops", "0.5", "--set", "target=0.6"),
        "target is 0.5 already",
    ),
    ((*OWN, "--data", "{good}", "--exit-layers", "x"), "--exit-layers x: write layers, such as 3,6,12"),
    ((*OWN, "--data", "{good}", "--precision", "int8"), "precision='int8'"),
    ((*OWN, "--data", "{good}", "--keep", "first"), "keep='first'"),
    ((*OWN, "--data", "{good}", "--epochs", "0"), "epochs"),
    ((*OWN, "--data", "{good}", "--batch-size", "0"), "batch"),
    ((*OWN, "--data", "{good}", "--learning-rate", "-1"), "learning"),
    ((*OWN, "--data", "{good}", "--learning-rate", "nan"), "learning rate must be more than 0, not nan"),
    ((*OWN, "--data", "{good}", "--learning-rate", "20"), "learning rate must be at most 1, not 20"),
    ((*OWN, "--data", "{good}", "--warmup", "7"), "warmup must be at most 1, not 7"),
    ((*OWN, "--data", "{good}", "--max-steps", "-1"), "max steps must be more than 0, not -1"),
    ((*OWN, "--data", "{good}", "--warmup-steps", "-1"), "warmup steps must be 0 or more, not -1"),
    ((*OWN, "--data", "{good}", "--adam-epsilon", "0"), "adam epsilon must be more than 0, not 0"),
    ((*OWN, "--data", "{good}", "--stride", "0"), "stride must be 1 or more, not 0"),
    ((*OWN, "--data", "{good}", "--early-stopping", "-1"), "early stopping must be 0 or more, not -1"),
    ((*OWN, "--data", "{good}", "--dev-share", "0", "--early-stopping", "3"), "no dev rows to stop early by"),
    ((*OWN, "--data", "{good}", "--seed", "-1"), "seed must be 0 or more"),
    ((*OWN, "--data", "{good}", "--dev-share", "0", "--keep", "best"), "no dev rows to tell the best weights by"),
    ((*OWN, "--data", "{good}", "--dev-share", "1.5"), "dev share 1.5"),
    (("--task", "rte", "--data-dir", "{data}", "--data", "{good}", "--backbone", "{backbone}"), "expected one of them"),
    (("--task", "rtf", "--data-dir", "{data}/glue", "--backbone", "{backbone}"), "task 'rtf' is not known"),
    (("--data-dir", "{data}/glue", "--backbone", "{backbone}"), "of which task?"),
]
FOUND_LATE: list[tuple[tuple[str, ...], str]] = [
    ((*OWN, "--data", "{good}", "--dev", "{data}/dev.csv"), "dev.csv:2: label 'so-so': expected one of bad, good"),
    ((*OWN, "--data", "{good}", "--exit-layers", "1,9"), "9"),
    ((*OWN, "--data", "{good}", "--layers", "9"), "9"),
    ((*OWN, "--data", "{good}", "--pooling", "median"), "median"),
    ((*OWN, "--data", "{good}", "--max-length", "1000"), "max length 1000: the model takes 8 to 40 tokens"),
    ((*OWN, "--data", "{good}", "--report-to", "carrier-pigeon"), "carrier-pigeon"),
    ((*OWN, "--data", "{good}", "--warmup-steps", "999"), "has only 10 steps"),
    ((*OWN, "--data", "{good}", "--stride", "64"), "stride 64: reviews has no contexts to read in windows"),
    (("--data", "{good}", "--label", "verdict", "--backbone", "{data}/nothing"), "nothing"),
    (("--data", "{good}", "--label", "verdict", "--backbone", "{data}"), "{data}"),
    (("--task", "rte", "--data-dir", "{data}/glue", "--backbone", "{backbone}"), "train.tsv:3: label 'perhaps'"),
]


@pytest.fixture(scope="module")
def wrong_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    (folder / "glue" / "RTE").mkdir(parents=True)
    rows = ["\t".join(find_benchmark("rte").files["train"].columns), "0\ta\tb\tentailment", "1\ta\tb\tperhaps"]
    (folder / "glue" / "RTE" / "train.tsv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[message for _, message in WRONG])
def test_bad_input(
    run: Run, backbone: Path, data: Path, wrong_files: Path, arguments: tuple[str, ...], message: str
) -> None:
    check_refused(run, backbone, data, wrong_files, arguments, message)


@pytest.mark.parametrize(("arguments", "message"), FOUND_LATE, ids=[" ".join(one[-2:]) for one, _ in FOUND_LATE])
def test_bad_input_found_late(
    run: Run, backbone: Path, data: Path, wrong_files: Path, arguments: tuple[str, ...], message: str
) -> None:
    check_refused(run, backbone, data, wrong_files, arguments, message)


def check_refused(
    run: Run, backbone: Path, data: Path, wrong_files: Path, arguments: tuple[str, ...], message: str
) -> None:
    """One line, exit status 2, and nothing is written."""
    places: dict[str, Any] = {"backbone": backbone, "good": data, "data": wrong_files}
    out = data.parent / "model"
    refused = run("train", "--out", out, *(argument.format(**places) for argument in arguments))
    assert refused.status == 2, refused.err
    assert refused.err.startswith("error: ")
    assert message.format(**places) in refused.err
    assert refused.err.count("\n") == 1
    assert not out.exists()


def test_no_place_for_the_model(run: Run, backbone: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    for out, options, message in (
        ("file", (), "file is a file: name a folder"),
        ("file/below", (), "plan.json cannot be written (Not a directory)"),
        ("full", (), "full exists and is not empty"),
        ("full", ("--overwrite",), "full is not a model folder: nothing in it will be overwritten"),
    ):
        refused = train(run, backbone, data, tmp_path / out, *options)
        assert refused.status == 2, refused.err
        assert message in refused.err
        assert refused.err.count("\n") == 1
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.tex"]
