"""Every link in the documents leads somewhere: the file is there, and so is the heading."""

from __future__ import annotations

import posixpath

import pytest

from tests.pages.reading import PAGES, ROOT, anchors, links

WRITTEN = [*PAGES, "CONTRIBUTING.md"]


@pytest.mark.parametrize("page", WRITTEN)
def test_links_lead_somewhere(page: str) -> None:
    for link in links(page):
        target, _, anchor = link.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) if target else page
        assert (ROOT / path).exists(), link
        assert not anchor or anchor in anchors(path), f"{link}: there are {sorted(anchors(path))}"
