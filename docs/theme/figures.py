"""A figure and its deviation stay on one line."""

from __future__ import annotations

import re
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with spaces around ± at which no line is broken."""
    return re.sub(r"(?<=\d) ± (?=\d)", "\u00a0±\u00a0", markdown)
