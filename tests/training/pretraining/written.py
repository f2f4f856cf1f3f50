"""Files of text, made in a moment."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

Documents = list[list[str]]


def write_text(path: Path, texts: Documents, between: str = "\n\n") -> Path:
    path.write_text(between.join("\n".join(paragraphs) for paragraphs in texts) + "\n", encoding="utf-8", newline="\n")
    return path


def write_packed(opener: Callable[..., Any]) -> Callable[[Path, Documents], Path]:
    def write(path: Path, texts: Documents) -> Path:
        with opener(path, "wb") as file:
            file.write("\n\n".join("\n".join(paragraphs) for paragraphs in texts).encode())
        return path

    return write


def made_up(rng: random.Random, words: int) -> str:
    """Words that no order of counting tells apart: all letters are about as frequent as each other."""
    return " ".join("".join(rng.choices("abcdefghijkl", k=4)) for _ in range(words))
