"""The site is built without a warning, and asks nobody else for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages.reading import PAGES, ROOT

pytest.importorskip("mkdocs", reason="pip install 'offramp[docs]'")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    for page in PAGES:
        if page.startswith("docs/"):
            assert (site / page.removeprefix("docs/")).with_suffix(".html").is_file()
    assert (site / "reference" / "commands" / "train.html").is_file()
    assert "leads the second" not in (site / "reference" / "python" / "offramp.policies.html").read_text()
    assert "Leave once" in (site / "reference" / "python" / "offramp.policies.html").read_text()


def test_nothing_comes_from_elsewhere(site: Path) -> None:
    """No script, style, font or picture of another site: it opens behind a wall."""
    asks = re.compile(
        r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(?:https?:)?//|<link\b[^>]*\bhref=\"?(?:https?:)?//"
    )
    for page in site.rglob("*.html"):
        if found := asks.search(page.read_text(encoding="utf-8")):
            raise AssertionError(f"{page.relative_to(site)}: {found[0]}")
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", style.read_text(encoding="utf-8")), style


def test_links_within_the_site_lead_somewhere(site: Path) -> None:
    """Also those of generated pages and of the navigation."""
    for page in site.rglob("*.html"):
        for target in re.findall(r"<a\b[^>]*\bhref=\"([^\"#?]+)", page.read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:", target) and page.name != "404.html":
                assert (page.parent / target).exists(), f"{page.relative_to(site)}: {target}"
