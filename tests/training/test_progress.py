"""What is shown while a model trains."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from offramp.training.progress import ShowProgress


def test_no_loss_is_shown_before_one_is_known() -> None:
    """The Trainer tells the first after some steps."""
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=120)
    progress = ShowProgress("joint", console)
    state: Any = SimpleNamespace(max_steps=20, global_step=1, epoch=0.5)
    args: Any = None
    progress.on_train_begin(args, state, None)
    try:
        progress.on_step_end(args, state, None)
        assert "loss" not in shown(progress)
        progress.on_evaluate(args, state, None, metrics={"eval_exit_1": 0.5})
        progress.on_log(args, state, None, logs={"learning_rate": 0.1})
        progress.on_log(args, state, None, logs={"loss": 0.25})
        progress.on_step_end(args, state, None)
        assert "loss 0.2500" in shown(progress)
        progress.on_evaluate(args, state, None, metrics={"eval_exit_1": 0.75})
    finally:
        progress.on_train_end(args, state, None)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "joint  epoch 0.5  dev score of each exit  50.0" in printed
    assert "joint  epoch 0.5  loss 0.2500  dev score of each exit  75.0" in printed
    assert "nan" not in printed


def shown(progress: ShowProgress) -> str:
    with progress.console.capture() as captured:
        progress.console.print(progress.bar.get_renderable())
    return captured.get()
