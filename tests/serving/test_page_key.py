"""The page where the server wants a key, in a browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("fastapi")

from tests.serving.page_server import StubService

STILL = {"reduced_motion": "reduce"}
Serve = Callable[..., str]
Open = Callable[..., Any]


def give(page: Any, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.keyboard.press("Enter")


def test_key(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(StubService(), api_keys=("secret",)), may_say="401", **STILL)
    assert page.locator("#shown").is_hidden()
    assert "sst2" not in page.content()
    for key, words in {
        "wrong": "The API key is wrong.",
        "schlüssel 🔑": "The API key is not accepted",
        "secret": "Operating point",
    }.items():
        give(page, key)
        page.get_by_text(words).first.wait_for()
    assert page.locator("#key-form").is_hidden()
    assert page.locator("#trouble").is_hidden()
    page.get_by_label("Text", exact=True).fill("a fine film")
    page.keyboard.press("Enter")
    page.wait_for_selector("#answer .number")
    page.reload()
    page.get_by_text("Operating point").first.wait_for()  # kept for the tab
    assert page.locator("#key-form").is_hidden()


def test_no_key_is_asked_for_where_none_is_wanted(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(StubService()), **STILL)
    page.wait_for_selector("#exits li")
    assert page.locator("#key-form").is_hidden()


@pytest.mark.parametrize("before", ["refused", "no answer yet"])
def test_a_page_that_was_opened_twice_asks_once(serve: Serve, open_page: Open, before: str) -> None:
    """Where it was trying still when the key came."""
    service = StubService()
    page = open_page(serve(service, api_keys=("secret",)), may_say="ERR_FAILED", **STILL)
    first: list[Any] = []

    def hold_the_first(route: Any) -> None:
        if first:
            route.continue_()
        elif before == "refused":
            route.abort()
        first.append(route)

    page.route("**/page/about", hold_the_first)
    with page.expect_request("**/page/about"):
        give(page, "secret")
    if before == "refused":
        page.get_by_text("Trying again").wait_for()
    give(page, "secret")
    page.locator("#live-state:has-text('live')").wait_for()
    if before == "no answer yet":
        first[0].continue_()
    page.wait_for_timeout(2200)  # by now it would have been tried again
    looks = service.looks
    page.wait_for_timeout(3000)
    assert 2 <= service.looks - looks <= 4
