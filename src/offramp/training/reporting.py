"""Where losses and scores are reported to: the Trainer's reporters, and one Weights & Biases run for all phases."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from transformers.integrations.integration_utils import (
    WandbCallback,
    get_available_reporting_integrations,
    get_reporting_integration_callbacks,
)

from offramp.errors import OfframpError, one_line


@dataclass(frozen=True)
class Reporting:
    """What the phases of a training report to."""

    name: str
    """Of the run."""
    to: tuple[str, ...] = ()
    """Reporters that each phase's Trainer makes for itself."""
    wandb: WandbRun | None = None


class WandbRun(WandbCallback):
    """One run for all phases of a training; steps go on from phase to phase."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.steps_before = 0
        """Steps of the phases before this one."""
        self.is_ours = False

    def setup(self, args: Any, state: Any, model: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero and self._wandb.run is None:
            self._wandb.init(project=os.getenv("WANDB_PROJECT", "huggingface"), name=self.name)
            self.is_ours = True
        super().setup(args, state, model, **kwargs)

    def on_log(self, args: Any, state: Any, control: Any, model: Any = None, logs: Any = None, **kwargs: Any) -> None:
        shown = copy.copy(state)
        shown.global_step += self.steps_before
        super().on_log(args, shown, control, model, logs, **kwargs)

    def finish(self, exit_code: int) -> None:
        """End the run, unless the caller had begun it."""
        if self.is_ours:
            self._wandb.finish(exit_code=exit_code)


@contextmanager
def reporting(names: Sequence[str], run_name: str) -> Iterator[Reporting]:
    """The reporters of a training, by the Trainer's names for them."""
    wandb = WandbRun(run_name) if "wandb" in names else None
    exit_code = 1
    try:
        yield Reporting(run_name, tuple(name for name in names if name != "wandb"), wandb)
        exit_code = 0
    finally:
        if wandb is not None:
            wandb.finish(exit_code)


def known_reporters(names: Sequence[str]) -> list[str]:
    """The reporters that are asked for; one that nobody knows, or whose library is not here, is refused."""
    if list(names) == ["all"]:
        return list(get_available_reporting_integrations())
    for name in names:
        if name in ("all", "none"):
            continue
        try:
            [reporter] = get_reporting_integration_callbacks([name])
            reporter()
        except (ValueError, RuntimeError, ImportError) as error:
            raise OfframpError(f"--report-to {name}: {one_line(error)}") from error
    return list(names)
