"""The files the GLUE and ELUE servers take."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from offramp.errors import OfframpError
from offramp.tasks.benchmarks import Benchmark, find_benchmark
from offramp.tasks.rows import some_of
from offramp.whole_file import whole_file

MNLI_NAMES = {"test_matched": ("MNLI-m", "mnli"), "test_mismatched": ("MNLI-mm", "mnli-mm")}
"""By split: the GLUE server's name, and the one the original programs wrote."""
LOWEST, HIGHEST = 0.0, 5.0
"""STS-B's scores; the server refuses others."""


def write_submission(
    folder: str | Path,
    task_name: str,
    split: str,
    answers: Iterable[tuple[str | float, int]],
    *,
    operating_point: str = "",
    original_names: bool = False,
) -> list[Path]:
    """Write one task's upload files from (label or score, exit layer) of every row, in the order of the test file.

    GLUE: `SST-2.tsv`, `MNLI-m.tsv` and so on, as the server names them; with `original_names`, as the original programs
    do (`sst-2.tsv`, `mnli.tsv`). ELUE: `sst-2_<operating point>.tsv`, and the exit layers beside it in
    `sst-2_infer_exit_layer_<operating point>.tsv`. Answers may be a stream; a file appears once it is complete.
    """
    bench = find_benchmark(task_name)
    names = submission_names(bench, split, operating_point, original_names)
    paths = [Path(folder) / name for name in names]
    with ExitStack() as opened:
        files = [opened.enter_context(whole_file(path)) for path in paths]
        for file, column in zip(files, ("prediction", "exit_layer"), strict=False):
            file.write(f"index\t{column}\n")
        for index, (prediction, exit_layer) in enumerate(answers):
            cells = (_prediction(bench, index, prediction), str(exit_layer))
            for file, cell in zip(files, cells, strict=False):  # GLUE takes no exit layers
                file.write(f"{index}\t{cell}\n")
    return paths


def submission_names(bench: Benchmark, split: str, operating_point: str, original_names: bool) -> list[str]:
    tests = [name for name in bench.files if name.startswith("test")]
    if split not in tests:
        raise OfframpError(f"{bench.name} {split}: upload files are of {' or '.join(tests)}")
    task = bench.folder.lower()
    if bench.suite == "elue":
        if not operating_point:
            raise OfframpError(f"{bench.name}: an ELUE file is of one operating point: give its policy")
        point = re.sub(r"[^\w.]+", "-", operating_point).strip("-")
        return [f"{task}_{point}.tsv", f"{task}_infer_exit_layer_{point}.tsv"]
    servers, original = MNLI_NAMES.get(split, (bench.folder, task))
    return [f"{original if original_names else servers}.tsv"]


def _prediction(bench: Benchmark, index: int, prediction: str | float) -> str:
    if not bench.labels:
        return f"{min(max(float(prediction), LOWEST), HIGHEST):.3f}"
    if prediction not in bench.labels:
        raise OfframpError(
            f"{bench.name}, row {index}: prediction {prediction!r}: expected one of {some_of(bench.labels)}; "
            "was the model trained on this task?"
        )
    return str(prediction)
