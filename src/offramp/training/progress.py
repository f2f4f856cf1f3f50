"""What a training run shows: a bar while it runs, a line with every exit's dev score, and a gentle way to stop it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import TrainerCallback, TrainingArguments
from transformers.trainer_utils import SaveStrategy
from transformers.utils import logging as transformers_logging


@contextmanager
def without_bars() -> Iterator[None]:
    """No bar for each file that Hugging Face code writes: ours says more."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()


class ShowProgress(TrainerCallback):
    """A bar on the terminal; one line for each look at the dev set."""

    def __init__(self, phase: str, console: Console) -> None:
        self.phase = phase
        self.console = console
        self.loss: float | None = None  # none is known in the first steps
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[loss]}"),
            TimeRemainingColumn(),
        )
        self.bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.steps = self.bar.add_task(phase, loss="")

    def on_train_begin(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        self.bar.update(self.steps, total=state.max_steps, completed=state.global_step)
        self.bar.start()

    def on_step_end(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        self.bar.update(self.steps, completed=state.global_step, loss=self.known_loss())

    def on_log(self, args: TrainingArguments, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if logs and "loss" in logs:
            self.loss = float(logs["loss"])

    def known_loss(self) -> str:
        return "" if self.loss is None else f"loss {self.loss:.4f}"

    def on_evaluate(
        self, args: TrainingArguments, state: Any, control: Any, metrics: Any = None, **kwargs: Any
    ) -> None:
        scores = [score for name, score in (metrics or {}).items() if name.startswith("eval_exit_")]
        by_exit = " ".join(f"{100 * score:5.1f}" for score in scores)
        parts = (self.phase, f"epoch {state.epoch:.4g}", self.known_loss(), f"dev score of each exit {by_exit}")
        self.console.print("  ".join(filter(None, parts)))

    def on_train_end(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        self.bar.stop()


class StopSignal:
    """Ctrl-C or SIGTERM as a wish to stop after this step; a second one stops at once."""

    def __init__(self) -> None:
        self.asked = False
        self.before: dict[int, Any] = {}

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            kinds = [kind for kind in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(kind) is not signal.SIG_IGN]
            self.before = {kind: signal.signal(kind, self.ask) for kind in kinds}  # what nohup ignores stays ignored
        return self

    def __exit__(self, *error: object) -> None:
        for kind, handler in self.before.items():
            signal.signal(kind, handler)
        self.before = {}

    def ask(self, kind: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def asked_anywhere(self, processes: int, device: torch.device) -> bool:
        """Whether any process was asked: all stop after the same step, or those that go on wait for ever."""
        self.asked = in_any_process(self.asked, processes, device)
        return self.asked


def in_any_process(flag: bool, processes: int, device: torch.device) -> bool:
    """Whether it is set in any process: the same answer in all of them."""
    if processes > 1:
        flags = torch.tensor(int(flag), device=device)
        torch.distributed.all_reduce(flags)
        return bool(flags)
    return flag


class StopGently(TrainerCallback):
    """On Ctrl-C or SIGTERM: finish the step, write a checkpoint, stop."""

    def __init__(self) -> None:
        self.signal = StopSignal()

    @property
    def asked(self) -> bool:
        return self.signal.asked

    def on_train_begin(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        self.signal.__enter__()

    def on_step_end(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        if self.signal.asked_anywhere(args.world_size, args.device):
            control.should_save = args.save_strategy != SaveStrategy.NO
            control.should_training_stop = True

    def on_epoch_end(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        """An epoch that was broken off is no time to look at dev: a run that is not stopped does not, and with the best
        weights kept it would end with others. The last step of all may be in the middle of an epoch, and is looked at.
        """
        if control.should_training_stop and state.epoch % 1 and state.global_step < state.max_steps:
            control.should_evaluate = False

    def on_train_end(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        self.restore()

    def restore(self) -> None:
        self.signal.__exit__()
