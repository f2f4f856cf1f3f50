"""The command line in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from offramp.cli import run_command


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """The command line, from its arguments to its exit status, in this process."""

    def run(*arguments: str | Path) -> Result:
        monkeypatch.setattr("sys.argv", ["offramp", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            run_command()
        printed = capsys.readouterr()
        return Result(int(stopped.value.code or 0), printed.out, printed.err)

    return run
