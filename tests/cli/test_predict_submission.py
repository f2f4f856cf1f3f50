"""`offramp predict --submission`: upload files of every task, as a user makes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import offramp
from offramp.tasks.benchmarks import BENCHMARKS, NLI, Benchmark, find_benchmark
from tests.command_line import Result
from tests.generated import reviews
from tests.prediction.models import constant_model, model_folder

Run = Callable[..., Result]
ROWS = 5
GLUE = [bench for bench in BENCHMARKS if bench.suite == "glue"]
ELUE = [bench for bench in BENCHMARKS if bench.suite == "elue"]
TEST_SPLITS = {"glue/mnli": ("MNLI-m", "MNLI-mm")}
"""The server's names, where there are two files."""


def official_tests(folder: Path, bench: Benchmark, rows: int = ROWS) -> Path:
    """The official test files of a task, in its official folder."""
    texts = [text for text, _ in reviews(2 * rows)]
    for split, file in bench.files.items():
        if not split.startswith("test"):
            continue
        lines = ["\t".join(file.columns)]
        for i in range(rows):
            cells = {file.text: texts[i], file.pair: texts[rows + i]}
            lines.append("\t".join(cells.get(column, "x") for column in file.columns))
        path = folder / bench.folder / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
    return folder


def submit(run: Run, model: Path, bench: Benchmark, folder: Path, *options: str) -> Result:
    data = official_tests(folder / bench.suite, bench)
    return run("predict", model, "--task", bench.name, "--data-dir", data, "--submission", folder / "up", *options)


def content(column: str, cell: str) -> str:
    return "\n".join([f"index\t{column}", *(f"{i}\t{cell}" for i in range(ROWS))]) + "\n"


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (folder / "up").iterdir()}


def outputs_for(bench: Benchmark, best: int) -> list[float]:
    return [4.0 if number == best else 0.0 for number in range(len(bench.labels))] or [2.5]


@pytest.mark.parametrize("bench", GLUE, ids=lambda bench: bench.name)
def test_glue(run: Run, bench: Benchmark, tmp_path: Path) -> None:
    model = constant_model(tmp_path / "model", outputs_for(bench, best=0))
    done = submit(run, model, bench, tmp_path)
    assert done.status == 0, done.err
    expected = content("prediction", bench.labels[0] if bench.labels else "2.500")
    assert files(tmp_path) == {f"{name}.tsv": expected for name in TEST_SPLITS.get(bench.name, (bench.folder,))}
    assert f"{ROWS} answers under fixed(2)" in done.err


def test_original_names_and_one_split(run: Run, tmp_path: Path) -> None:
    bench = find_benchmark("mnli")
    model = constant_model(tmp_path / "model", outputs_for(bench, 0))
    done = submit(run, model, bench, tmp_path, "--original-names", "--split", "test_mismatched")
    assert done.status == 0, done.err
    assert set(files(tmp_path)) == {"mnli-mm.tsv"}


@pytest.mark.parametrize("task", ["mnli", "ax"])
@pytest.mark.parametrize("best", range(3))
@pytest.mark.parametrize(
    ("family", "order"),
    [("bert", NLI), ("roberta", ("contradiction", "neutral", "entailment"))],
    ids=["bert", "roberta"],
)
def test_the_label_order_of_robertas_is_undone(
    run: Run, family: str, order: tuple[str, ...], best: int, task: str, tmp_path: Path
) -> None:
    """A configuration that names no labels: a RoBERTa numbers those of MNLI in its own way."""
    bench = find_benchmark(task)
    model = constant_model(tmp_path / "model", outputs_for(bench, best), family=family)
    assert submit(run, model, bench, tmp_path).status == 0
    assert set(files(tmp_path).values()) == {content("prediction", order[best])}


def test_labels_named_in_the_model_decide(run: Run, tmp_path: Path) -> None:
    bench = find_benchmark("rte")
    names = ("not_entailment", "entailment")
    model = model_folder(tmp_path / "model", names)
    assert submit(run, model, bench, tmp_path).status == 0
    answers = [line.split("\t")[1] for line in files(tmp_path)["RTE.tsv"].splitlines()[1:]]
    texts = [text for text, _ in reviews(2 * ROWS)]
    pairs = list(zip(texts[:ROWS], texts[ROWS:], strict=True))
    assert answers == [one.label for one in offramp.predict(model, pairs)]


@pytest.mark.parametrize("bench", ELUE, ids=lambda bench: bench.name)
def test_elue(run: Run, bench: Benchmark, tmp_path: Path) -> None:
    """One pair of files for each operating point."""
    model = constant_model(tmp_path / "model", outputs_for(bench, best=1))
    done = submit(run, model, bench, tmp_path, "--policy", "fixed(1)", "--policy", "fixed(2)")
    assert done.status == 0, done.err
    name, label = bench.folder.lower(), bench.labels[1] if bench.labels else "2.500"
    assert files(tmp_path) == {
        f"{name}_fixed-1.tsv": content("prediction", label),
        f"{name}_fixed-2.tsv": content("prediction", label),
        f"{name}_infer_exit_layer_fixed-1.tsv": content("exit_layer", "1"),
        f"{name}_infer_exit_layer_fixed-2.tsv": content("exit_layer", "2"),
    }


SST2 = {"name": "glue/sst-2", "data_dir": None}
WRONG = [
    ("rte", [0.0, 1.0, 2.0], None, (), "glue/rte asks for 2 labels (entailment, not_entailment)"),
    ("sts-b", [0.0, 1.0], None, (), "glue/sts-b asks for a number, but the model answers with one of 2 labels"),
    ("rte", [0.0, 1.0], SST2, (), "the model was trained on single texts, and glue/rte is of pairs of texts"),
    ("sst-2", [0.0, 1.0], None, ("--split", "dev"), "glue/sst-2 dev: upload files are of test"),
    ("sst-2", [0.0, 1.0], None, ("--policy", "fixed(1)", "--policy", "fixed(2)"), "a GLUE upload is of one policy"),
    ("sst-2", [0.0, 1.0], None, ("--out", "a.csv"), "--out has no meaning with --submission"),
    (
        "elue/sst-2",
        [0.0, 1.0],
        None,
        ("--policy", "entropy(0.1) | patience(1)", "--policy", "entropy(0.1) & patience(1)"),
        "two policies would write sst-2_entropy-0.1-patience-1.tsv",
    ),
]


@pytest.mark.parametrize(("task", "outputs", "trained", "options", "message"), WRONG)
def test_bad_input(
    run: Run,
    task: str,
    outputs: list[float],
    trained: dict[str, str] | None,
    options: tuple[str, ...],
    message: str,
    tmp_path: Path,
) -> None:
    model = constant_model(tmp_path / "model", outputs, trained)
    refused = submit(run, model, find_benchmark(task), tmp_path, *options)
    assert refused.status == 2
    assert refused.err.startswith("error: ")
    assert message in refused.err
    assert refused.err.count("\n") == 1
    assert not (tmp_path / "up").exists()


def test_labels_of_another_task(run: Run, tmp_path: Path) -> None:
    model = model_folder(tmp_path / "model", ("bad", "good"))
    refused = submit(run, model, find_benchmark("rte"), tmp_path)
    assert refused.status == 2
    assert "the labels of glue/rte are entailment, not_entailment, but the model's are bad, good" in refused.err


def test_what_is_missing(run: Run, tmp_path: Path) -> None:
    model = constant_model(tmp_path / "model", [0.0, 1.0])
    data = official_tests(tmp_path / "glue", find_benchmark("sst-2"))
    for arguments, message in {
        ("a film", "--submission", tmp_path / "up"): "give --task and --data-dir, and no input",
        ("--submission", tmp_path / "up"): "give --task and --data-dir, and no input",
        ("--task", "sst-2", "--data-dir", data): "give --submission FOLDER, too",
        ("--task", "sst-2", "--data-dir", tmp_path / "x", "--submission", tmp_path / "up"): "x is not a folder",
    }.items():
        refused = run("predict", model, *arguments)
        assert refused.status == 2
        assert message in refused.err
