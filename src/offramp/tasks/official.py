"""Tasks of GLUE and ELUE: from their official folders, or from the hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from offramp.errors import OfframpError
from offramp.tasks.benchmarks import Benchmark, find_benchmark, plain
from offramp.tasks.hub import benchmark_tables
from offramp.tasks.official_files import SplitFile
from offramp.tasks.rows import Columns, read_rows
from offramp.tasks.tables import Table, read_table
from offramp.tasks.task import Examples, Task

PACKED = ("", ".xz", ".gz", ".bz2")


Source = tuple[Callable[[], Table], Columns]


def benchmark_task(name: str, data_dir: str | Path | None = None) -> Task:
    """A GLUE or ELUE task, from its official folder or the folder above; without a folder, from the hub."""
    bench = find_benchmark(name)
    sources = _on_the_hub(bench) if data_dir is None else _in_folder(bench, find_folder(bench, Path(data_dir)))
    return Task(
        name=bench.name,
        labels=bench.labels,
        metrics=bench.metrics,
        pair=bench.pair,
        readers={split: _reader(bench, *source) for split, source in sources.items()},
        record={"name": bench.name, "data_dir": None if data_dir is None else str(Path(data_dir).absolute())},
    )


def _in_folder(bench: Benchmark, folder: Path) -> dict[str, Source]:
    paths = {split: path for split, file in bench.files.items() if (path := find_file(folder, file))}
    return {split: _in_file(path, bench.files[split]) for split, path in paths.items()}


def _in_file(path: Path, file: SplitFile) -> Source:
    names = None if file.header else file.columns
    return lambda: read_table(path, names, file.skip_short), Columns(file.text, file.pair, file.label)


def _on_the_hub(bench: Benchmark) -> dict[str, Source]:
    def columns(split: str) -> Columns:
        return Columns(bench.hub.text, bench.hub.pair, "label" if bench.files[split].label else None)

    return {split: (table, columns(split)) for split, table in benchmark_tables(bench).items()}


def _reader(bench: Benchmark, table: Callable[[], Table], columns: Columns) -> Callable[[], Examples]:
    return lambda: read_rows(table(), columns, empty_texts=True).examples(bench.labels)


def find_folder(bench: Benchmark, data_dir: Path) -> Path:
    """The folder with the task's files: the one given, or one of the official name in it."""
    if not data_dir.is_dir():
        raise OfframpError(f"{data_dir} is not a folder: expected one with the files of {bench.name}{_fetch(bench)}")
    names = [plain(name) for name in (bench.folder, *bench.also_in)]
    inside = [entry for entry in data_dir.iterdir() if entry.is_dir() and plain(entry.name) in names]
    inside.sort(key=lambda entry: (names.index(plain(entry.name)), entry.name))
    for folder in (data_dir, *inside):
        if any(find_file(folder, file) for file in bench.files.values()):
            return folder
    expected = ", ".join(file.name for file in bench.files.values())
    raise OfframpError(
        f"{data_dir} holds none of {expected} (plain, .xz, .gz or .bz2), and no folder {bench.folder} with them"
        f"{_fetch(bench)}"
    )


def find_file(folder: Path, file: SplitFile) -> Path | None:
    paths = (folder / f"{file.name}{packed}" for packed in PACKED)
    return next((path for path in paths if path.is_file()), None)


def _fetch(bench: Benchmark) -> str:
    return f"; fetch them with offramp data {bench.suite} --out DIR --tasks {bench.folder.lower()}"
