"""SQuAD as a task: which files hold its splits."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from offramp.errors import OfframpError
from offramp.tasks.benchmarks import plain
from offramp.tasks.files import COMPRESSIONS, check_file
from offramp.tasks.sources import SPLITS, place
from offramp.tasks.squad.questions import Questions
from offramp.tasks.squad.reading import read_squad
from offramp.tasks.task import Task

NAME = "squad"
VERSIONS = {NAME: "1.1", "squad2": "2.0"}
"""Which version a task's name means, where a folder has both. With `squad` alone any version that is there will do."""
METRICS = ("f1", "exact")
VERSION = re.compile(r"v?(\d\.\d)")


def is_squad(name: str | None, own: dict[str, Any]) -> bool:
    """Whether a task's name means SQuAD. Where a column is named, too, it is a user's own table of that name."""
    return name is not None and plain(name) in VERSIONS and own.get("text") is None


def squad_task(
    data_dir: str | Path | None = None,
    *,
    name: str = NAME,
    data: str | Path | None = None,
    dev: str | Path | None = None,
    test: str | Path | None = None,
    **unused: Any,
) -> Task:
    """SQuAD, or data in its format: whether it is 1.1 or 2.0, each file says itself (`read_squad`).

    `data_dir` is a folder with files called `train…json`, `dev…json`, or `…-train…json`, plain or packed; of several
    for a split, the one of the same version (`v1.1`) as the others' counts, or else that which the task's name means:
    `squad` is 1.1, `squad2` is 2.0. Or the files are named: `data` (to train on), `dev` and `test`.
    """
    name = plain(name)
    option = next((name for name, value in unused.items() if value is not None), None)
    if option:
        raise OfframpError(f"{option} is for own data with labels: squad takes data_dir, or data, dev and test")
    if data_dir is not None and data is not None:
        raise OfframpError("squad: expected its folder (data_dir) or its training file (data), not both")
    folder = data_dir if data_dir is not None else data if data is not None and Path(data).is_dir() else None
    named = {"train": data if folder is None else None, "dev": dev, "test": test}
    paths = {} if folder is None else _in_folder(Path(folder), {split for split, path in named.items() if path}, name)
    paths |= {split: Path(path) for split, path in named.items() if path is not None}
    if not paths:
        raise OfframpError("squad: expected the folder of its files (data_dir), or files (data, dev)")
    for path in paths.values():
        check_file(path)  # now, and not after hours of training
    return Task(
        name=name,
        labels=(),
        metrics=METRICS,
        pair=True,
        readers={split: _reader(paths[split]) for split in SPLITS if split in paths},
        record={
            "name": name,
            "data_dir": place(data_dir),
            "data": place(data),
            "dev": place(dev),
            "test": place(test),
        },
        spans=True,
    )


def _reader(path: Path) -> Callable[[], Questions]:
    return lambda: read_squad(path)


def _in_folder(folder: Path, given: set[str], name: str) -> dict[str, Path]:
    """The file of each split that is not given by name."""
    if not folder.is_dir():
        raise OfframpError(f"{folder} is not a folder: expected one with SQuAD's train-v1.1.json and dev-v1.1.json")
    files = sorted(path for path in folder.iterdir() if path.is_file() and _is_json(path))
    found = {split: [path for path in files if _is_of(path, names)] for split, names in SPLITS.items()}
    found = {split: paths for split, paths in found.items() if paths and split not in given}
    if not found and not given:
        there = ", ".join(path.name for path in files[:5]) or "no .json file"
        raise OfframpError(f"{folder}: expected train….json or dev….json (plain, .xz, .gz or .bz2): it has {there}")
    if name != NAME:
        found = {
            split: [path for path in paths if _version(path) in (None, VERSIONS[name])]
            for split, paths in found.items()
        }
        if not any(found.values()) and not given:
            raise OfframpError(f"{folder}: expected files of SQuAD {VERSIONS[name]}, as dev-v{VERSIONS[name]}.json")
    versions = {_version(paths[0]) for paths in found.values() if len(paths) == 1} - {None} or {VERSIONS[name]}
    return {split: _only(folder, split, paths, versions) for split, paths in found.items() if paths}


def _only(folder: Path, split: str, paths: list[Path], versions: set[str | None]) -> Path:
    fitting = paths if len(paths) == 1 else [path for path in paths if _version(path) in versions]
    if len(fitting) != 1:
        names = " and ".join(path.name for path in paths[:2])
        raise OfframpError(
            f"{folder}: {names} could each be {split}: name the files (--data train.json --dev dev.json)"
        )
    return fitting[0]


def _is_json(path: Path) -> bool:
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return name.suffix.lower() == ".json"


def _is_of(path: Path, names: tuple[str, ...]) -> bool:
    return any(part in names for part in re.split(r"[-_.]", path.name.lower()))


def _version(path: Path) -> str | None:
    found = VERSION.search(path.name)
    return found[1] if found else None
