"""Where a user's rows lie: a file, a folder of files, or a hub set, as one table for each split."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from offramp.errors import OfframpError
from offramp.tasks.files import COMPRESSIONS, check_file
from offramp.tasks.hub import hub_table, load_splits
from offramp.tasks.tables import FORMATS, Table, read_table, table_format

Source = Callable[[], Table]

SPLITS = {"train": ("train",), "dev": ("dev", "validation", "valid", "val"), "test": ("test",)}
SUFFIXES = {f".{format}" for format in (*FORMATS, "ndjson", "parquet")}
DOWNLOADED = tuple("*/" * depth + "*.parquet" for depth in range(4))
"""Where the files of a hub set lie that was downloaded; no deeper, for somebody may name a whole disk."""
HUB_NAME = re.compile(r"(?P<name>\w[\w.-]*(/\w[\w.-]*)?)(:(?P<config>[\w.-]+))?")


def find_sources(data: str | Path | None, dev: str | Path | None, test: str | Path | None) -> dict[str, Source]:
    """The table of each split there is. Files given for dev and test count before those found with `data`."""
    given = {"dev": dev, "test": test}
    sources = {} if data is None else _splits_of(data)
    sources |= {split: _file(Path(path)) for split, path in given.items() if path is not None}
    if not sources:
        raise OfframpError("no data: give a file, a folder or a hub data set (--data)")
    return {split: sources[split] for split in SPLITS if split in sources}


def place(data: str | Path | None) -> str | None:
    """Where data lies, so that it is found from any folder."""
    if data is None:
        return None
    return str(Path(data).absolute()) if Path(data).exists() else str(data)


def stem(data: str | Path) -> str:
    """A name for a task on this data: `reviews` for `~/data/reviews.csv.gz`."""
    return Path(str(data).rstrip("/")).name.split(".")[0] or "own"


def _splits_of(data: str | Path) -> dict[str, Source]:
    path = Path(data)
    if path.is_dir():
        return _folder(path)
    hub = HUB_NAME.fullmatch(str(data))
    if path.exists() or _is_table(path) or hub is None:
        return {"train": _file(path)}
    try:
        return _hub_set(hub["name"], hub["config"])
    except OfframpError as error:
        raise OfframpError(f"{data} is no file or folder here, and {error}") from error


def _file(path: Path) -> Source:
    check_file(path)  # now, and not after hours of training
    table_format(path)
    return lambda: read_table(path)


def _folder(folder: Path) -> dict[str, Source]:
    tables = sorted(entry for entry in folder.iterdir() if entry.is_file() and _is_table(entry))
    found: dict[str, Source] = {}
    for split, names in SPLITS.items():
        paths = [path for path in tables if path.name.split(".")[0].lower() in names]
        if len(paths) > 1:
            raise OfframpError(f"{folder}: {paths[0].name} and {paths[1].name} could each be {split}: keep one of them")
        if paths:
            found[split] = _file(paths[0])
    if found:
        return found
    if any(path for pattern in DOWNLOADED for path in folder.glob(pattern)):
        return _hub_set(str(folder), None)
    there = ", ".join(path.name for path in tables[:5]) or "no such file"
    raise OfframpError(
        f"{folder}: expected train.csv, .tsv, .jsonl or .parquet, and perhaps dev and test: it has {there}"
    )


def _hub_set(name: str, config: str | None) -> dict[str, Source]:
    splits = load_splits(name, config)
    found: dict[str, Source] = {}
    for split, names in SPLITS.items():
        theirs = next((name for name in names if name in splits), None)
        if theirs is not None:
            found[split] = _hub_split(splits[theirs], f"hub:{name} {theirs}")
    if not found:
        raise OfframpError(f"hub data set {name} has splits {', '.join(splits)}: expected train, validation or test")
    return found


def _hub_split(dataset: object, source: str) -> Source:
    return lambda: hub_table(dataset, source)


def _is_table(path: Path) -> bool:
    suffixes = path.suffixes[:-1] if path.suffix.lower() in COMPRESSIONS else path.suffixes
    return bool(suffixes) and suffixes[-1].lower() in SUFFIXES
