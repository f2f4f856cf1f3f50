"""All looks one after another: what one of them cannot find out does not hinder the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from offramp import __version__
from offramp.doctor import choices, instructions, libraries, machine, places
from offramp.doctor.findings import Finding
from offramp.errors import one_line

Look = Callable[[], Iterator[Finding]]

LOOKS: tuple[tuple[str, str, Look], ...] = (
    (machine.PART, "system", machine.system),
    (machine.PART, "processor", instructions.named),
    (machine.PART, "cores", machine.cores),
    (machine.PART, "memory", machine.memory),
    (machine.PART, "bf16 on the CPU", instructions.bf16),
    (machine.PART, "int8 on the CPU", instructions.int8),
    (machine.PART, "GPU", choices.graphics),
    (libraries.PART, "libraries", libraries.needed),
    (libraries.PART, "extras", libraries.extras),
    (libraries.PART, "triton", libraries.triton),
    (libraries.PART, "imports", libraries.loading),
    (choices.PART, "device, precision and backend", choices.settings),
    (choices.PART, "threads", choices.threads),
    (places.MODELS, "models in the box", places.models),
    (places.FOLDERS, "folders", places.caches),
)
"""What is looked at, by part of the report and by name."""


@dataclass(frozen=True)
class Examination:
    """Everything that was found."""

    findings: tuple[Finding, ...]

    @property
    def broken(self) -> list[Finding]:
        return [one for one in self.findings if one.state == "broken"]

    @property
    def would_help(self) -> list[Finding]:
        return [one for one in self.findings if one.state == "could be better"]

    def to_json(self) -> dict[str, Any]:
        """What `offramp doctor --json` prints."""
        return {
            "offramp": __version__,
            "broken": len(self.broken),
            "findings": [asdict(one) for one in self.findings],
        }


def examine(
    watch: Callable[[str], None] = lambda name: None, looks: tuple[tuple[str, str, Look], ...] = LOOKS
) -> Examination:
    """Look at everything; `watch` is told what comes next."""
    found: list[Finding] = []
    with _quietly():
        for part, name, look in looks:
            watch(name)
            try:
                found += look()
            except Exception as error:  # whatever it is: a report with a gap is better than none
                found.append(
                    Finding(
                        part, name, f"could not be found out ({type(error).__name__}: {one_line(error)})", "unknown"
                    )
                )
    return Examination(tuple(found))


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the warnings that opening a model makes: what matters of them is in the report."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
