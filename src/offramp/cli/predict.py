"""`offramp predict`: answers for a text, a file or a pipe."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from offramp.cli.app import app
from offramp.cli.task_options import DataDir, PairColumn, TaskName, task_from_options
from offramp.cli.task_options import TextColumn as TextOption
from offramp.errors import Interrupted, OfframpError
from offramp.interop import load
from offramp.policies import Policy, policy_from_text
from offramp.prediction.files import Writer, open_writer
from offramp.prediction.inputs import LINES, Item, is_file_name, line_items, open_table, table_items
from offramp.prediction.predictor import Prediction, Predictor, Text
from offramp.tasks.labels import label_names
from offramp.tasks.submission import write_submission
from offramp.tasks.task import Task

ROWS_AT_A_TIME = 256
ANSWER = ("label", "score", "exit_layer")

EXAMPLES = """
Examples:

  offramp predict runs/sst2 "a clumsy, tiresome film that wastes a good cast" --policy 'entropy(0.1)'

  offramp predict runs/reviews new.csv --out answers.csv --keep id

  offramp predict runs/rte "The cat sat on the mat." --pair "The mat was sat on."

  cat texts.txt | offramp predict runs/sst2 - > answers.jsonl

  offramp predict runs/mnli --task mnli --data-dir glue --submission upload

  offramp predict runs/imdb --task imdb --data-dir elue --submission up --policy 'patience(2)' --policy 'patience(4)'
"""


@app.command(epilog=EXAMPLES)
def predict(
    model: Annotated[str, typer.Argument(help="Model folder.")],
    input: Annotated[
        str | None, typer.Argument(help="A CSV, TSV, JSONL or Parquet file, - for standard input, or a text.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write: .jsonl, .csv, .tsv or .parquet.")] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="When to leave; default: the model's own, or else full depth.")
    ] = None,
    text: TextOption = None,
    text_pair: PairColumn = None,
    pair: Annotated[str | None, typer.Option(help="The second text, where INPUT is a text.")] = None,
    keep: Annotated[str | None, typer.Option(help="Columns of the input to write beside the answers: id,text.")] = None,
    format: Annotated[
        str | None, typer.Option(help="Of standard input: lines (one text each; the default), jsonl, csv or tsv.")
    ] = None,
    task: TaskName = None,
    data_dir: DataDir = None,
    split: Annotated[str | None, typer.Option(help="With --task: this split; default: every test split.")] = None,
    submission: Annotated[Path | None, typer.Option(help="With --task: folder for the server's upload files.")] = None,
    original_names: Annotated[
        bool, typer.Option("--original-names", help="Upload files named as the original programs do.")
    ] = False,
    max_length: Annotated[int | None, typer.Option(help="Cut texts to so many tokens; default: as trained.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts at a time.")] = 32,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output file.")] = False,
) -> None:
    """Answer texts with label, score and exit layer: a stream, in the order of the input, whatever its size."""
    policies: list[Policy | None] = [policy_from_text(one) for one in policy or []] or [None]
    opened = load(model)
    chosen = task_from_options(task, data_dir)
    settings = {"max_length": max_length, "batch_size": batch_size, "device": device}
    predictors = [
        Predictor(opened, one, label_names=label_names(opened, chosen) if chosen else None, **settings)  # type: ignore[arg-type]
        for one in policies
    ]
    if submission is not None:
        if chosen is None or input is not None:
            raise OfframpError("upload files are of a task's test rows: give --task and --data-dir, and no input")
        _submit(predictors, chosen, split, submission, original_names)
        return
    if chosen is not None:
        raise OfframpError("--task is for upload files: say where to, with --submission FOLDER")
    if input is None:
        raise OfframpError("nothing to answer: give a file, a text, or - for standard input")
    if len(predictors) > 1:
        raise OfframpError("one policy at a time: several are for ELUE's upload files")
    kept = [column.strip() for column in keep.split(",")] if keep else []
    predictor = predictors[0]
    if input == "-" or is_file_name(input):
        items = _items(predictor, input, format, text, text_pair, kept)
        predictor.read_ahead = 1 if input == "-" else predictor.read_ahead  # whoever pipes may wait for answers
        _answer_all(predictor, items, open_writer(out, (*kept, *ANSWER), overwrite), out)
    else:
        items = iter([((input, pair) if pair is not None else input, {"text": input})])
        _answer_all(predictor, items, open_writer(out, ("text", *ANSWER), overwrite), out)


def _items(
    predictor: Predictor, input: str, format: str | None, text: str | None, pair: str | None, keep: list[str]
) -> Iterator[Item]:
    if input == "-" and format in (None, LINES):
        return line_items(predictor.model)
    return table_items(open_table(input, format), predictor.model, text, pair, keep)


def _answer_all(predictor: Predictor, items: Iterator[Item], writer: Writer, out: Path | None) -> None:
    """Answer and write, some rows at a time; say how far it came if it is stopped."""
    beside: deque[dict[str, object]] = deque()
    rows: list[dict[str, object]] = []
    written = 0

    def texts() -> Iterator[Text]:
        for item, kept in items:
            beside.append(kept)
            yield item

    try:
        with _progress() as count:
            for prediction in predictor.stream(texts()):
                rows.append({**beside.popleft(), **_columns(prediction)})
                if len(rows) >= ROWS_AT_A_TIME or not beside:
                    writer.write(rows)
                    written += len(rows)
                    rows = []
                    count(written)
    except KeyboardInterrupt:
        where = f"{out} holds their answers" if out else "their answers were written"
        raise Interrupted(f"stopped after {written:,} rows: {where}, whole lines only") from None
    finally:
        writer.close()
    if out is not None:
        typer.echo(f"{out}: {written:,} answers under {predictor.policy}", err=True)


def _columns(prediction: Prediction) -> dict[str, object]:
    score = None if prediction.score is None else round(prediction.score, 6)
    return {"label": prediction.label, "score": score, "exit_layer": prediction.exit_layer}


@contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """Rows and rows a second, on a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.completed:,} rows"),
        BarColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("rows", total=None, speed="")
        started = time.monotonic()

        def count(rows: int) -> None:
            progress.update(bar, completed=rows, speed=f"{rows / (time.monotonic() - started):,.0f} rows/s")

        yield count


def _submit(predictors: list[Predictor], task: Task, split: str | None, folder: Path, original_names: bool) -> None:
    """One set of files for each policy and test split."""
    splits = [split] if split else [name for name in task.splits if name.startswith("test")]
    if not splits:
        raise OfframpError(f"{task.name} has no test split here: it has {', '.join(task.splits)}")
    if len(predictors) > 1 and task.name.startswith("glue/"):
        raise OfframpError("a GLUE upload is of one policy: give one")
    for name in splits:
        examples = task.split(name)
        texts: list[Text] = (
            list(zip(examples.texts, examples.pairs, strict=True)) if examples.pairs else list(examples.texts)
        )
        for predictor in predictors:
            answers = ((prediction.label, prediction.exit_layer) for prediction in predictor.stream(texts))
            files = write_submission(
                folder, task.name, name, answers, operating_point=str(predictor.policy), original_names=original_names
            )
            typer.echo(f"{', '.join(map(str, files))}: {len(texts):,} answers under {predictor.policy}", err=True)
