"""What a look at one thing has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["fine", "could be better", "broken", "unknown"]


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    part: str
    """Of the report: the machine, the libraries …"""
    name: str
    value: str
    state: State = "fine"
    advice: str = ""
    """What would help, in one line."""


def better(part: str, name: str, value: str, advice: str) -> Finding:
    """Something that works, and could work better."""
    return Finding(part, name, value, "could be better", advice)


def broken(part: str, name: str, value: str, advice: str) -> Finding:
    """Something without which offramp, or a part of it, does not work."""
    return Finding(part, name, value, "broken", advice)
