"""Pages in a real browser, without a network. Where there is none, the tests that need one are skipped by name."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")  # no longer: while it runs, no other test could start an event loop
def browser() -> Iterator[Any]:
    with import_module("playwright.sync_api").sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_program(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Open a file, or what a server here serves, as a reader would.

    Any request to elsewhere, console error (but those that `may_say` names) or exception fails the test.
    """
    if find_spec("playwright") is None:
        pytest.skip(f"{request.node.name}: no playwright (pip install playwright)")
    if _program() is None:
        pytest.skip(f"{request.node.name}: no browser (Debian: apt-get install chromium)")
    browser = request.getfixturevalue("browser")
    wrong: list[str] = []
    contexts = []

    def open_page(
        where: Path | str, width: int = 1280, scheme: str = "light", may_say: str = "", **settings: Any
    ) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=isinstance(where, Path), **settings
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        home = ("data:", "blob:", where if isinstance(where, str) else "file:")

        def heard(message: Any) -> None:
            if message.type in ("error", "warning") and not (may_say and re.search(may_say, message.text)):
                wrong.append(message.text)

        page.on("request", lambda request: request.url.startswith(home) or wrong.append(f"request {request.url}"))
        page.on("console", heard)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(where if isinstance(where, str) else where.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong


def _program() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)
