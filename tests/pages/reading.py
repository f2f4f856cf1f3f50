"""The documents: their blocks of code, headings and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>.*?) -->\n)?^```(?P<language>\w*)(?: title=\"(?P<title>.*?)\")?\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PROGRAMS = r"(\w+=\S+ )*(offramp|pip|cat|python|make|git|docker|curl|serve|torchrun)\b"
HEADING = re.compile(r"^#+ (.*?)(?: \{.*\})?$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    language: str
    text: str
    title: str
    """The file that it is, for a block that is one."""
    reason: str
    """Why it is not run, where a comment above it says so."""


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def blocks(document: str) -> list[Block]:
    """Every block, in its order. One that names no language is taken for commands where it begins like one."""
    found = []
    for fence in FENCE.finditer(text_of(document)):
        bare = "sh" if re.match(PROGRAMS, fence["text"]) else "text"
        found.append(Block(fence["language"] or bare, fence["text"], fence["title"] or "", fence["reason"] or ""))
    return found


def commands(document: str) -> list[str]:
    """Every line of its blocks of commands that runs offramp."""
    lines = [line for block in blocks(document) if block.language == "sh" for line in block.text.splitlines()]
    return [line for line in lines if re.match(r"(\w+=\S+ )*(cat \S+ \| )?offramp ", line)]


def prose(document: str) -> str:
    """The page without what stands between fences."""
    return FENCE.sub("", text_of(document))


def anchors(document: str) -> set[str]:
    """The names by which its headings can be linked to: as GitHub makes them, and the site."""
    found: dict[str, int] = {}
    every = set()
    for heading in HEADING.findall(prose(document)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        every.add(f"{name}-{found[name]}" if name in found else name)
        found[name] = found.get(name, 0) + 1
    return every


def links(document: str) -> list[str]:
    """Where its links and images lead, but for other sites."""
    return [target for target in LINK.findall(prose(document)) if not re.match(r"[a-z]+:", target)]
