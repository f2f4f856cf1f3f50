"""Fetch GLUE, ELUE and SQuAD through the hub, and write the official folders."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from offramp.errors import OfframpError
from offramp.tasks.benchmarks import BENCHMARKS, Benchmark, plain
from offramp.tasks.hub import benchmark_tables, load_splits
from offramp.tasks.official_files import SplitFile
from offramp.tasks.rows import label_cell, text_cell
from offramp.tasks.tables import Record, Table
from offramp.whole_file import whole_file

SQUAD = {"1.1": "rajpurkar/squad", "2.0": "rajpurkar/squad_v2"}
BREAKS = re.compile(r"[\t\r\n]")
SUITES = ("glue", "elue", "squad")

Say = Callable[[str], None]
Watch = Callable[[Iterator[Record], str], Iterator[Record]]
"""Passes rows on; a progress bar counts them on their way."""


def download(
    suite: str,
    out: str | Path,
    tasks: Sequence[str] = (),
    *,
    overwrite: bool = False,
    say: Say = print,
    watch: Watch = lambda rows, what: rows,
) -> list[Path]:
    """Write the official files of a suite's tasks (all by default) below `out`; files that are there are kept.

    `say` is told, a line a file, what was written and what was changed or left out. An interrupted download leaves
    whole files only.
    """
    if suite not in SUITES:
        raise OfframpError(f"suite {suite!r}: expected one of {', '.join(SUITES)}")
    out = Path(out)
    if suite == "squad":
        return [path for version in _versions(tasks) for path in _squad(version, out, overwrite, say)]
    return [path for bench in _benchmarks(suite, tasks) for path in _benchmark(bench, out, overwrite, say, watch)]


def _benchmarks(suite: str, tasks: Sequence[str]) -> list[Benchmark]:
    there = {plain(bench.folder): bench for bench in BENCHMARKS if bench.suite == suite}
    for task in tasks:
        if plain(task) not in there:
            names = ", ".join(bench.folder.lower() for bench in there.values())
            raise OfframpError(f"{suite} has no task {task!r}: expected of {names}")
    return [there[plain(task)] for task in tasks] or list(there.values())


def _versions(tasks: Sequence[str]) -> list[str]:
    versions = [task.lower().removeprefix("v") for task in tasks] or list(SQUAD)
    for version in versions:
        if version not in SQUAD:
            raise OfframpError(f"squad has no version {version!r}: expected of {', '.join(SQUAD)}")
    return versions


def _benchmark(bench: Benchmark, out: Path, overwrite: bool, say: Say, watch: Watch) -> list[Path]:
    paths = {split: out / bench.folder / file.name for split, file in bench.files.items()}
    wanted = {split: path for split, path in paths.items() if _wanted(path, overwrite, say)}
    if not wanted:
        return []
    note = f" ({bench.hub.note})" if bench.hub.note else ""
    say(f"{bench.name}: fetching {bench.hub.name} {bench.hub.config or ''}".rstrip() + note)
    tables = benchmark_tables(bench)
    for split, path in wanted.items():
        table = tables[split]()
        rows, cleaned = _write_tsv(bench, bench.files[split], table, path, watch(iter(table), str(path)))
        spaces = f"; tabs and line ends in {cleaned} texts became spaces" if cleaned else ""
        say(f"{path}: {rows:,} rows{spaces}")
    return list(wanted.values())


def _wanted(path: Path, overwrite: bool, say: Say) -> bool:
    if path.exists() and not overwrite:
        say(f"{path} is there and kept (--overwrite fetches it again)")
        return False
    return True


def _write_tsv(
    bench: Benchmark, file: SplitFile, table: Table, path: Path, records: Iterator[Record]
) -> tuple[int, int]:
    """How many rows were written, and in how many texts tabs and line ends had to become spaces."""
    rows = cleaned = 0
    with whole_file(path) as out:
        if file.header:
            out.write("\t".join(file.columns) + "\n")
        for record in records:
            cells = _cells(bench, file, table, record, rows)
            written = {column: BREAKS.sub(" ", cell) for column, cell in cells.items()}
            cleaned += sum(written[column] != cell for column, cell in cells.items())
            out.write("\t".join(written.get(column, "") for column in file.columns) + "\n")
            rows += 1
    return rows, cleaned


def _cells(bench: Benchmark, file: SplitFile, table: Table, record: Record, index: int) -> dict[str, str]:
    """What the hub knows of a row; other columns (parses, genres) stay empty."""
    hub = bench.hub
    cells = {"index": str(index), "id": str(index), file.text: text_cell(table, record, hub.text, may_be_empty=True)}
    if file.pair is not None and hub.pair is not None:
        cells[file.pair] = text_cell(table, record, hub.pair, may_be_empty=True)
    if file.label is not None:
        label = label_cell(table, record, "label")
        if label is None:
            raise OfframpError(f"{table.where(record.line)}: no label: expected one in every row")
        cells[file.label] = label if bench.labels else f"{float(label):.3f}"
    return cells


def _squad(version: str, out: Path, overwrite: bool, say: Say) -> list[Path]:
    """`train-v1.1.json` and so on, as the SQuAD site has them."""
    paths = {split: out / f"{name}-v{version}.json" for split, name in (("train", "train"), ("validation", "dev"))}
    wanted = {split: path for split, path in paths.items() if _wanted(path, overwrite, say)}
    if not wanted:
        return []
    say(f"squad {version}: fetching {SQUAD[version]}")
    splits = load_splits(SQUAD[version])
    for split, path in wanted.items():
        if split not in splits:
            raise OfframpError(f"hub data set {SQUAD[version]} has no split {split}: it has {', '.join(splits)}")
        with whole_file(path) as file:
            json.dump({"version": version, "data": _articles(splits[split], version)}, file, ensure_ascii=False)
        say(f"{path}: {len(splits[split]):,} questions")
    return list(wanted.values())


def _articles(rows: Any, version: str) -> list[dict[str, Any]]:
    """Questions one by one to articles of paragraphs of questions; the hub keeps them in order."""
    return [
        {
            "title": title,
            "paragraphs": [
                {"context": context, "qas": [_question(row, version) for row in same_context]}
                for context, same_context in groupby(article, key=lambda row: row["context"])
            ],
        }
        for title, article in groupby(rows, key=lambda row: row["title"])
    ]


def _question(row: dict[str, Any], version: str) -> dict[str, Any]:
    answers = row["answers"]
    found = [
        {"text": text, "answer_start": start}
        for text, start in zip(answers["text"], answers["answer_start"], strict=True)
    ]
    question = {"id": row["id"], "question": row["question"], "answers": found}
    return question if version == "1.1" else {**question, "is_impossible": not found}
