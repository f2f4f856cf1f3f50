"""Links to files of the repository that are not part of the site: to the repository if it has an address, or none."""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """The page with every link that leads out of docs/ changed."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def changed(link: re.Match[str]) -> str:
        text, target, _ = link.groups()
        path = posixpath.normpath(posixpath.join(folder, target))
        if path.startswith("docs/"):
            return link[0]
        if config.repo_url:
            return f"[{text}]({config.repo_url.rstrip('/')}/blob/HEAD/{path})"
        shown = text.strip("`")
        return f"`{path}`" if shown.rstrip("/") in path else f"{text} (`{path}`)"

    return LINK.sub(changed, markdown)
