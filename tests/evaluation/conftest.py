"""Fixtures of the pages' tests."""

from tests.browser import browser, open_page

__all__ = ["browser", "open_page"]
