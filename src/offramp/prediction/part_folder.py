"""The folder that parts are written to: what it is of, what is done, and so what is missing."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any

from offramp.errors import OfframpError, one_line
from offramp.prediction.parts import Job, Receipt, Source
from offramp.typed_json import read_object, typed
from offramp.whole_file import whole_file

try:
    import fcntl
except ImportError:  # where folders are not locked
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("offramp")

MANIFEST = "manifest.json"
"""The settings, the files and, once all is done, the sums."""
RECEIPTS = "receipts.jsonl"
"""One line for each part that is there, written after it."""


LOCK = ".lock"
"""Held while a run writes."""


class PartFolder:
    """Takes receipts. A part without one counts as missing: it is made again, and replaced as a whole.

    Nobody else writes to the folder until it is left (`with`), or this process ends.

    Args:
        job: what is done; its `out` is this folder.
        settings: what answers depend on: they must be those that the folder was begun with.
        sources: the files to answer. One that was finished and has changed since is refused; one that was not is
            begun again.
        overwrite: begin with an empty folder, whatever answers are in it.
    """

    def __init__(self, job: Job, settings: dict[str, Any], sources: Sequence[Source], overwrite: bool = False) -> None:
        self.job = job
        self.folder = Path(job.out)
        self.sources = list(sources)
        self.settings = json.loads(json.dumps(settings))
        self.receipts: dict[str, dict[int, Receipt]] = {}
        begun = self._begun()
        self._lock = locked(self.folder / LOCK)
        try:
            if begun and overwrite:
                for name in begun["sources"]:
                    self._clear(name)
                (self.folder / RECEIPTS).unlink(missing_ok=True)
                begun = None
            self._go_on(begun or {"settings": self.settings, "sources": {}})
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> PartFolder:
        return self

    def __exit__(self, *failed: object) -> None:
        (self.folder / LOCK).unlink(missing_ok=True)
        self._lock.close()

    def missing(self) -> list[tuple[Source, frozenset[int]]]:
        """The files that are not finished, each with the parts of it that are there."""
        return [(one, frozenset(self._parts(one))) for one in self.sources if not self._is_finished(one.name)]

    def record(self, receipt: Receipt) -> None:
        """Note a part that was written."""
        with (self.folder / RECEIPTS).open("a", encoding="utf-8") as file:
            file.write(_line(receipt))
        self.receipts.setdefault(receipt.source, {})[receipt.number] = receipt

    def totals(self) -> dict[str, int]:
        every = [receipt for source in self.sources for receipt in self._parts(source).values()]
        rows, failed = sum(one.rows for one in every), sum(one.failed for one in every)
        return {"files": len(self.sources), "parts": len(every), "rows": rows, "without_answer": failed}

    def first_error(self) -> str | None:
        every = (self._parts(source)[number] for source in self.sources for number in sorted(self._parts(source)))
        return next((one.first_error for one in every if one.first_error), None)

    def finish(self) -> None:
        """Say in the manifest that all is there."""
        self._remove_scraps()
        self._write_manifest(self.totals())

    def _begun(self) -> dict[str, Any] | None:
        """The manifest that is there; None where nothing is."""
        path = self.folder / MANIFEST
        if self.folder.exists() and not self.folder.is_dir():
            raise OfframpError(f"{self.folder} is a file: name a folder for the answers")
        if not path.is_file():
            if self.folder.exists() and any(path.name != LOCK for path in self.folder.iterdir()):
                raise OfframpError(f"{self.folder} is not empty and holds no {MANIFEST}: name another folder")
            return None
        try:
            found = read_object(path)
            sources = typed(dict[str, dict[str, int]], found.get("sources"), "sources")
            if strange := [name for name in sources if not is_below(name)]:
                raise ValueError(f"sources: {strange[0]!r} is no name of a file")
            return {"settings": typed(dict[str, Any], found.get("settings"), "settings"), "sources": sources}
        except (ValueError, OSError) as error:
            raise OfframpError(f"{path} is damaged ({one_line(error)}): name another folder") from error

    def _go_on(self, begun: dict[str, Any]) -> None:
        for name in [*self.settings, *begun["settings"]]:
            before, now = begun["settings"].get(name), self.settings.get(name)
            if before != now:
                raise OfframpError(
                    f"{self.folder} was begun with {name} {before}, and this is {now}: name another folder, or say "
                    "--overwrite"
                )
        lines = self._read_receipts()
        for source in self.sources:
            if begun["sources"].get(source.name, _mark(source)) != _mark(source):
                if self._is_finished(source.name):
                    raise OfframpError(
                        f"{source.path} has changed since it was answered: name another folder, or say --overwrite"
                    )
                self._clear(source.name)
        if sum(map(len, self.receipts.values())) != lines:  # of parts that are gone, or cut short by a kill
            with whole_file(self.folder / RECEIPTS) as file:
                file.writelines(map(_line, (one for parts in self.receipts.values() for one in parts.values())))
        self.known = {**begun["sources"], **{source.name: _mark(source) for source in self.sources}}
        self._remove_scraps()
        self._write_manifest(None)

    def _remove_scraps(self) -> None:
        """What workers that were lost left half written."""
        for source in self.sources:
            for scrap in (self.folder / source.name).glob(".part-*"):
                scrap.unlink(missing_ok=True)

    def _read_receipts(self) -> int:
        """The receipts of parts that are there; how many lines the file has."""
        path = self.folder / RECEIPTS
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        for line in lines:
            if not line.endswith(b"\n"):
                continue  # the run was killed while it wrote this one
            try:
                receipt: Receipt = typed(Receipt, json.loads(line))
                if not is_below(receipt.source):
                    raise ValueError(f"source {receipt.source!r} is no name of a file")
                is_there = self.job.path(receipt.source, receipt.number).is_file()
            except (ValueError, OSError, RecursionError) as error:
                raise OfframpError(f"{path} is damaged ({one_line(error)}): say --overwrite") from error
            if is_there:
                self.receipts.setdefault(receipt.source, {})[receipt.number] = receipt
        return len(lines)

    def _parts(self, source: Source) -> dict[int, Receipt]:
        return self.receipts.get(source.name, {})

    def _is_finished(self, name: str) -> bool:
        """Whether all parts up to the last one are there."""
        parts = self.receipts.get(name, {})
        return any(one.last and one.number == len(parts) - 1 for one in parts.values())

    def _clear(self, name: str) -> None:
        """Remove a file's parts, and nothing else."""
        self.receipts.pop(name, None)
        for pattern in ("part-*", ".part-*"):
            for path in (self.folder / name).glob(pattern):
                path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty, or not there
            (self.folder / name).rmdir()

    def _write_manifest(self, finished: dict[str, int] | None) -> None:
        content = {"settings": self.settings, "finished": finished, "sources": self.known}
        with whole_file(self.folder / MANIFEST) as file:
            file.write(json.dumps(content, indent=1) + "\n")  # in ASCII: a file's name may be no text


def locked(path: Path) -> IO[bytes]:
    """A file that nobody else holds until it is closed, by whatever end of this process."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError as error:
        raise OfframpError(f"{path.parent} cannot be written to ({error.strerror})") from error
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OfframpError(f"another run writes to {path.parent}: wait for it, or name another folder") from error
        except OSError:  # a file system that has no locks
            log.debug("%s cannot be locked", path)
    return file


def _line(receipt: Receipt) -> str:
    return json.dumps(receipt._asdict()) + "\n"


def is_below(name: str) -> bool:
    """Whether it is the path of something in a folder, and not of what lies elsewhere."""
    parts = PurePosixPath(name).parts
    return bool(parts) and "\0" not in name and not name.startswith("/") and ".." not in parts


def _mark(source: Source) -> dict[str, int]:
    return {"size": source.size, "changed": source.changed}
