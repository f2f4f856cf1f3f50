"""Every command and every piece of Python in the documents is run, and prints what they say it prints."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from offramp.cli.app import app
from tests.pages.home import furnish
from tests.pages.reading import PAGES, blocks, commands, text_of
from tests.pages.running import REASONS, fork_server, run_page, runnable

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
RUN = [page for page in PAGES if runnable(blocks(page))]
LANGUAGES = {"sh", "python", "text"}


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return furnish(tmp_path_factory.mktemp("furnished"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with fork_server(tmp_path_factory.mktemp("server")) as folder:
        yield folder


@pytest.mark.skipif(sys.platform != "linux", reason="pages are run by bash, in forks")
@pytest.mark.parametrize("page", RUN)
def test_the_page_runs(page: str, furnished: Path, server: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(furnished, home, symlinks=True)
    ran = run_page(page, home, server)
    assert ran.status == 0, ran.printed[-2000:]
    for said, promised in zip(ran.of_python, printed_below_python(page), strict=True):
        if promised is not None:
            assert_alike(said, promised)


def printed_below_python(page: str) -> list[str | None]:
    """What the page says that each piece of its Python prints; None where it does not say."""
    listed = blocks(page)
    after = [*listed[1:], None]
    pairs = zip(listed, after, strict=True)
    return [
        then.text if then and then.language == "text" else None
        for block, then in pairs
        if block in runnable([block]) and block.language == "python"
    ]


def assert_alike(said: str, promised: str) -> None:
    """The same; where it is percentages, the same words and nearly the same shares."""
    share = r"[\d.]+(?=%)"
    if not re.search(share, promised):
        assert said == promised
        return
    assert [re.sub(r"\d+", "0", line) for line in said.split()] == [
        re.sub(r"\d+", "0", line) for line in promised.split()
    ]
    for found, expected in zip(re.findall(share, said), re.findall(share, promised), strict=True):
        assert float(found) == pytest.approx(float(expected), abs=8)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_why_not(page: str) -> None:
    """One that is marked names a reason that is listed, and its commands are read as the command line reads them."""
    for block in blocks(page):
        assert block.language in LANGUAGES, f"```{block.language}: one of {LANGUAGES}"
        assert not block.reason or block.reason in REASONS
        if block.title.startswith("examples/"):
            assert block.text == text_of(block.title), f"{block.title} is another"
        else:
            assert not block.title or block.title.startswith(("src/", "tests/")), f"{block.title}: nobody writes it"
    for line in commands(page):
        words = shlex.split(line, comments=True)
        if "|" in words:
            words = words[words.index("|") + 1 :]
        name, *arguments = words[words.index("offramp") + 1 :]
        if ">" in arguments:
            arguments = arguments[: arguments.index(">")]
        assert not COMMANDS[name].make_context(name, arguments).args
