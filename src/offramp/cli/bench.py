"""`offramp bench`: how fast a model answers on this machine, beside what could be run instead."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from offramp.cli.app import app
from offramp.cli.engine_options import Backend, Device, Precision, Threads
from offramp.cli.own_policy import say_own_policy
from offramp.cli.refusal import refuse
from offramp.cli.task_options import PairColumn, TextColumn
from offramp.errors import Interrupted, OfframpError
from offramp.shipped import resolve, results_home

if TYPE_CHECKING:
    from offramp.bench.results import BenchResults
    from offramp.bench.run import OnProgress
    from offramp.engine.coverage import RunAs
    from offramp.engine.texts import Text
    from offramp.models import MultiExitModel
    from offramp.policies import Policy
    from offramp.tasks.encoding import Row

ROWS = {"cuda": 8192}
"""That are measured at most, by device."""
FEW_ROWS = 512

NOTE = (
    "ONNX Runtime, OpenVINO and what is called sorted take their batches from rows sorted by length. "
    "Shares and × are medians over rounds, each of ratios within one: not quotients of the columns."
)

EXAMPLES = """
Examples:

  offramp bench runs/sst2 --policy 'entropy(0.1)' --data new.csv

  offramp bench bert-base --precision int8 --batch-sizes 1,32

  offramp bench minilm --device cpu --threads 2 --seconds 30 --out minilm-bench
"""


@app.command("bench", epilog=EXAMPLES)
def bench_command(
    model: Annotated[
        str,
        typer.Argument(
            help="Model folder, or a shape with random weights: bert-base, bert-large, roberta-base, albert-base, "
            "minilm, tiny."
        ),
    ],
    policy: Annotated[
        str | None, typer.Option(help="When to leave; default: the model's own, or else made-up exits at 5 of 12.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Own texts: CSV, TSV, JSONL, Parquet, or .txt (one a line); default: made up.")
    ] = None,
    text: TextColumn = None,
    text_pair: PairColumn = None,
    max_length: Annotated[
        int | None, typer.Option(help="Cut own texts to so many tokens; default: as trained.")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Most rows to measure with.")] = None,
    batch_sizes: Annotated[str, typer.Option(help="With commas between; a stream is measured in any case.")] = (
        "1,8,32,128"
    ),
    seconds: Annotated[float, typer.Option(min=0, help="To spend on timing, roughly; one round is made anyhow.")] = 60,
    device: Device = "auto",
    precision: Precision = "auto",
    backend: Backend = "auto",
    threads: Threads = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; default: bench in the model folder, or ./bench-SHAPE.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Time a model at full depth and with exits beside transformers and ONNX Runtime: latency, throughput, a verdict.

    Everybody answers the same tokens, in turns, in one run. Rows come tokenised: that is not timed.
    """
    from offramp.bench.run import Bench
    from offramp.bench.workload import made_up_rows
    from offramp.models.device import find_device
    from offramp.prediction.files import heeding_ctrl_c
    from offramp.whole_folder import make_writable

    sizes = _sizes(batch_sizes)
    opened, home = _open(model)
    target = out or home
    if not math.isfinite(seconds):
        raise OfframpError(f"--seconds {seconds}: expected a number of seconds")
    if any(place.is_file() for place in (target, *target.parents)):
        raise OfframpError(f"{target} cannot be made: there is a file of that name, or above it; name another --out")
    if policy is None:
        say_own_policy(opened, *_runs(opened, data, max_length, device, precision, backend))
    make_writable(target, "name another --out")
    count = rows or ROWS.get(find_device(device).type, FEW_ROWS)
    if data is None:
        refuse("is for own texts: give --data", text=text, text_pair=text_pair, max_length=max_length)
        texts = made_up_rows(count, opened)
    else:
        texts = _own_rows(data, opened, count, text, text_pair, max_length)
    bench = Bench(
        opened, model, _policy(opened, policy, len(texts)), texts, device, precision, backend, threads, seconds
    )
    bench.settings |= {"rows": "made up" if data is None else str(data), "seconds": seconds}
    for size in [size for size in sizes if size > len(texts)]:
        bench.skipped[f"batch {size}"] = f"there are {len(texts)} rows"
    measured = [size for size in sizes if size <= len(texts)]
    try:
        with heeding_ctrl_c() as check, _progress(check) as bench.on_progress:
            bench.run([*measured, None])
    except KeyboardInterrupt:
        kept = f": {target / 'bench.json'} holds what was measured" if _write(bench.results(), target) else ""
        with suppress(OSError):
            target.rmdir()  # if nothing is in it
        done = len(bench.workloads)
        raise Interrupted(f"stopped after {done} of {len(measured) + 1} batch sizes{kept}") from None
    _write(bench.results(), target)
    if as_json:
        typer.echo(json.dumps(bench.results().as_json(), ensure_ascii=False))
    else:
        _show(bench.results(), target)


def _sizes(text: str) -> list[int]:
    try:
        sizes = sorted({int(part) for part in text.split(",")})
    except ValueError:
        sizes = [0]
    if sizes[0] < 1:
        raise OfframpError(f"--batch-sizes {text}: expected numbers from 1 with commas between, such as 1,8,32")
    return sizes


def _open(name: str) -> tuple[MultiExitModel, Path]:
    """The model, and where its results go."""
    from offramp.bench.workload import SHAPES, model_of
    from offramp.interop import load

    if name in SHAPES and not Path(name).exists():
        return model_of(SHAPES[name]), Path(f"bench-{name}")
    if not Path(resolve(name)).exists() and "/" not in name:
        raise OfframpError(f"{name} is neither a folder nor a shape: name a model folder, or {', '.join(SHAPES)}")
    return load(name), results_home(name) / "bench"


def _runs(
    model: MultiExitModel, data: Path | None, max_length: int | None, device: str, precision: str, backend: str
) -> list[RunAs]:
    """How the model is run: on a CPU, where nothing is asked, in int8 as well. Rows that are made up are never cut."""
    from offramp.engine.coverage import RunAs, cut_to
    from offramp.models.device import find_device

    first = RunAs.of(model, device=device, precision=precision, backend=backend)
    also = ["int8"] if precision == "auto" and find_device(device).type == "cpu" else []
    length = None if data is None else cut_to(model, max_length)
    return [RunAs(one, length) for one in (first.precision, *also)]


def _policy(model: MultiExitModel, asked: str | None, rows: int) -> Policy:
    """As asked, or the folder's; else a script, so that there is something to see."""
    from offramp.bench.workload import scripted_exits
    from offramp.engine.policy_choice import own_policy, policy_for
    from offramp.policies import Scripted

    if asked is None and own_policy(model) is None:
        return scripted_exits(rows, model.backbone.depth)
    policy = policy_for(model, asked)
    if isinstance(policy, Scripted) and len(policy.layers) < rows:
        raise OfframpError(f"the script has {len(policy.layers)} samples, and {rows} rows are measured: give --rows")
    return policy


def _own_rows(
    path: Path, model: MultiExitModel, most: int, text: str | None, text_pair: str | None, max_length: int | None
) -> list[Row]:
    """Texts of a file, as tokens."""
    from offramp.engine.texts import encode_texts
    from offramp.prediction.inputs import is_text_file, open_table, table_texts
    from offramp.tasks.encoding import Row, text_encoder

    if not model.name_or_path:
        refuse("needs a tokenizer, and a shape has none: name a model folder", data=path)
    if model.objective.name == "span":
        refuse("is for models that answer with labels: this one is measured with made-up tokens", data=path)
    if plain := is_text_file(str(path)):
        refuse(f"names a column, and {path} is plain text", text=text, text_pair=text_pair)
    texts = _lines(path) if plain else table_texts(open_table(str(path), None), model, text, text_pair)
    encoded = encode_texts(text_encoder(model, max_length), model.backbone, list(islice(texts, most)))
    for number, row in enumerate(encoded, start=1):
        if isinstance(row, str):
            raise OfframpError(f"{path}: text {number}: {row}")
    rows = [row for row in encoded if isinstance(row, Row)]
    if not rows:
        raise OfframpError(f"{path} holds no texts: expected one a line, or a table with a column of texts")
    return rows


def _lines(path: Path) -> Iterator[Text]:
    from offramp.tasks.files import Lines, open_bytes

    lines = Lines(open_bytes(path), str(path))
    return (line.rstrip("\r\n") for line in lines if line.strip())


def _write(results: BenchResults, folder: Path) -> bool:
    """bench.json and, where matplotlib is installed, bench.png; nothing before the first batch size is measured."""
    if not results.workloads:
        return False
    results.write(folder / "bench.json")
    (folder / "bench.png").unlink(missing_ok=True)
    try:
        from offramp.bench.drawing import draw

        draw(results, folder / "bench.png")
    except OfframpError as error:  # matplotlib is not installed
        typer.echo(f"no plot: {error}", err=True)
    return True


@contextmanager
def _progress(check: Callable[[], None]) -> Iterator[OnProgress]:
    """What is being done, on the terminal's error output."""
    with Console(stderr=True).status("") as status:

        def on_progress(what: str) -> None:
            check()
            status.update(f"{what} …")

        yield on_progress


def _show(results: BenchResults, folder: Path) -> None:
    from offramp.bench.tables import bench_table, counted
    from offramp.bench.verdict import verdict

    console = Console(highlight=False)
    machine = results.settings["machine"]
    console.print(
        f"{results.model}: {results.depth} layers, {results.mean_tokens:.1f} tokens a text, under {results.policy}; "
        f"{machine.get('gpu', machine['processor'])}, {counted(machine['threads'], 'thread')}",
        soft_wrap=True,
        markup=False,
    )
    console.print(bench_table(results))
    console.print(NOTE, soft_wrap=True, style="dim")
    for workload in results.workloads:
        console.print(verdict(workload), soft_wrap=True, markup=False)
    for name, what in results.settings.get("notes", {}).items():
        console.print(f"{name}: {what}", soft_wrap=True, markup=False, style="dim")
    for name, why in results.skipped.items():
        console.print(f"not measured: {name} ({why})", soft_wrap=True, markup=False, style="dim")
    names = [path.name for path in (folder / "bench.json", folder / "bench.png") if path.exists()]
    console.print(f"{folder}: {', '.join(names)}", soft_wrap=True, markup=False)
