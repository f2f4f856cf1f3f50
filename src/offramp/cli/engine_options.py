"""Options of commands that run a model on the engine."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

option = partial(typer.Option, show_envvar=False)
"""Where options are environment variables, too, that is said once: a column of names would leave no room for words."""

Device = Annotated[str, option(help="auto, cpu, cuda, cuda:1 …")]
Precision = Annotated[
    str,
    option(help="auto (bf16 on a GPU, fp32 on a CPU), fp32, bf16, fp16 (GPU) or int8 (CPU)."),
]
Backend = Annotated[str, option(help="auto (the fastest that can), torch, onnx (CPU) or graphs (CUDA).")]
Threads = Annotated[int | None, option(min=1, help="Of the CPU; default: all that torch would use.")]
BatchSize = Annotated[int | None, option(min=1, help="Most rows at a time; default: as many as is best.")]
MaxLength = Annotated[int | None, option(help="Cut texts (or windows on them) to so many tokens; default: as trained.")]
OtherPrecision = Annotated[str | None, option(help="bf16, fp16 (GPU) or int8 (CPU) instead of the weights' own.")]
Limit = Annotated[int | None, option(min=1, help="Only the first so many rows, or questions.")]
Fresh = Annotated[bool, option("--fresh", help="Run the model even if a true trace is there.")]
OriginalPadding = Annotated[
    bool,
    option(
        "--original-padding",
        help="For EBERT's checkpoints: answer as its program does, which pads every row to the full length.",
    ),
]
