"""Fixtures of the server's tests."""

from tests.browser import browser, open_page
from tests.serving.http_server import calibrated
from tests.serving.page_server import serve

__all__ = ["browser", "calibrated", "open_page", "serve"]
