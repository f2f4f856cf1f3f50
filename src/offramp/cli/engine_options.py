"""Options of commands that run a model on the engine."""

from __future__ import annotations

from typing import Annotated

import typer

Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")]
Precision = Annotated[
    str, typer.Option(help="auto (bf16 on a GPU, fp32 on a CPU), fp32, bf16, fp16 (GPU) or int8 (CPU).")
]
Backend = Annotated[str, typer.Option(help="auto (the fastest that can), torch, onnx (CPU) or graphs (CUDA).")]
Threads = Annotated[int | None, typer.Option(min=1, help="Of the CPU; default: all that torch would use.")]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Most rows at a time; default: as many as is best.")]
MaxLength = Annotated[
    int | None, typer.Option(help="Cut texts (or windows on them) to so many tokens; default: as trained.")
]
OtherPrecision = Annotated[str | None, typer.Option(help="bf16, fp16 (GPU) or int8 (CPU) instead of the weights' own.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first so many rows, or questions.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run the model even if a true trace is there.")]
