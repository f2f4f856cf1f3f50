"""`offramp predict`: answers for a text, a file or a pipe."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offramp.cli.app import app
from offramp.cli.engine_options import Backend, BatchSize, Device, OriginalPadding, Precision, Threads
from offramp.cli.own_policy import say_own_policy
from offramp.cli.predict_folder import EngineName, RowsPerPart, Workers, predict_folder
from offramp.cli.predict_progress import rows_progress
from offramp.cli.predict_spans import MaxAnswerTokens, NBest, NullThreshold, predict_spans
from offramp.cli.refusal import refuse
from offramp.cli.task_options import DataDir, PairColumn, TaskName, task_from_options
from offramp.cli.task_options import TextColumn as TextOption
from offramp.errors import Interrupted, OfframpError

if TYPE_CHECKING:
    from offramp.engine import Engine, Prediction, Text
    from offramp.models import MultiExitModel
    from offramp.policies import Policy
    from offramp.prediction.begun_file import BegunFile
    from offramp.prediction.files import Writer
    from offramp.prediction.inputs import Item
    from offramp.tasks import Task

ROWS_AT_A_TIME = 256

EXAMPLES = """
Examples:

  offramp predict runs/sst2 "a clumsy, tiresome film that wastes a good cast" --policy 'entropy(0.1)'

  offramp predict runs/reviews new.csv --out answers.csv --keep id

  offramp predict runs/rte "The cat sat on the mat." --pair "The mat was sat on."

  offramp predict runs/reviews new.csv --out answers.csv --keep id --resume

  cat texts.txt | offramp predict runs/sst2 - > answers.jsonl

  offramp predict runs/squad "Who sat on the mat?" --pair "The cat sat on the mat."

  offramp predict runs/reviews incoming --engine ray --workers 8 --out answered --format parquet

  offramp predict runs/squad --data dev-v2.0.json --out answers --policy 'confidence(0.6)'

  offramp predict runs/mnli --task mnli --data-dir glue --submission upload

  offramp predict runs/imdb --task imdb --data-dir elue --submission up --policy 'patience(2)' --policy 'patience(4)'
"""


@app.command(epilog=EXAMPLES)
def predict(
    model: Annotated[str, typer.Argument(help="Model folder.")],
    input: Annotated[
        str | None, typer.Argument(help="A CSV, TSV, JSONL, Parquet or .txt file, a folder, - for a pipe, or a text.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Questions in SQuAD's format (.json, .json.xz), where the model answers such.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write: .jsonl, .csv, .tsv or .parquet; of a folder, with Ray or --data: a folder."),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="When to leave; default: the model's own, or else full depth.")
    ] = None,
    text: TextOption = None,
    text_pair: PairColumn = None,
    pair: Annotated[
        str | None, typer.Option(help="The second text, where INPUT is a text; the context, where it is a question.")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(help="Columns of the input to write beside the answers: id,text. A label becomes input_label."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            help="Of standard input: lines (one text each; the default), jsonl, csv or tsv. Of a folder's answers: "
            "jsonl (the default), csv, tsv or parquet."
        ),
    ] = None,
    task: TaskName = None,
    data_dir: DataDir = None,
    split: Annotated[str | None, typer.Option(help="With --task: this split; default: every test split.")] = None,
    submission: Annotated[Path | None, typer.Option(help="With --task: folder for the server's upload files.")] = None,
    original_names: Annotated[
        bool, typer.Option("--original-names", help="Upload files named as the original programs do.")
    ] = False,
    null_threshold: NullThreshold = None,
    n_best: NBest = None,
    max_answer_tokens: MaxAnswerTokens = None,
    max_length: Annotated[int | None, typer.Option(help="Cut texts to so many tokens; default: as trained.")] = None,
    batch_size: BatchSize = None,
    device: Device = "auto",
    precision: Precision = "auto",
    backend: Backend = "auto",
    threads: Threads = None,
    original_padding: OriginalPadding = False,
    engine: EngineName = "local",
    workers: Workers = None,
    rows_per_part: RowsPerPart = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the answers that are there.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the --out file of a run that was stopped: .jsonl, .csv, .tsv.")
    ] = False,
) -> None:
    """Answer texts with label, score and exit layer: a stream, in the order of the input, whatever its size.

    Questions of a file (--data) are answered into a folder, once all are. A folder of files, or anything with
    --engine ray, is answered into a folder of parts; the same command again does what is missing.
    """
    from offramp.engine import Engine
    from offramp.engine.coverage import RunAs, cut_to
    from offramp.interop import load
    from offramp.policies import policy_from_text
    from offramp.prediction import SpanPredictor
    from offramp.prediction.begun_file import read_begun
    from offramp.prediction.files import open_writer
    from offramp.prediction.inputs import ANSWER
    from offramp.tasks.labels import label_names

    policies: list[Policy | None] = [policy_from_text(one) for one in policy or []] or [None]
    opened = load(model)
    if original_padding:
        opened.pad_gates_to(cut_to(opened, max_length))
    settings: dict[str, Any] = {"max_length": max_length, "batch_size": batch_size, "device": device}
    settings |= {"precision": precision, "backend": backend, "threads": threads}
    if not policy:
        say_own_policy(opened, RunAs.of(opened, **settings))
    if resume and out is None:
        raise OfframpError("--resume goes on with the file of --out: name it")
    if resume and overwrite:
        raise OfframpError("--resume goes on with a file which --overwrite would replace: say one of them")
    spans = {"null_threshold": null_threshold, "n_best": n_best, "max_answer_tokens": max_answer_tokens}
    if opened.objective.name == "span":
        of_labels = {"text": text, "text_pair": text_pair, "keep": keep, "format": format, "task": task, "split": split}
        why = "is for models that answer with labels: this one answers the questions of a file (--data FILE)"
        refuse(why, **of_labels, data_dir=data_dir, submission=submission)
        refuse("is for upload files", original_names=original_names or None)
        refuse("is for a file of labels: these answers are written once all are there", resume=resume or None)
        refuse(why, engine=None if engine == "local" else engine, workers=workers, rows_per_part=rows_per_part)
        settings |= {name: value for name, value in spans.items() if value is not None}
        if len(policies) > 1:
            raise OfframpError("one policy at a time: several are for ELUE's upload files")
        predict_spans(SpanPredictor(opened, policies[0], **settings), input, pair, data, out, overwrite)
        return
    refuse("is for models that answer questions with spans, and this one answers texts with labels", data=data, **spans)
    columns = {"text": text, "text_pair": text_pair, "keep": keep}
    if engine != "local" or (input is not None and os.path.isdir(input)):  # noqa: PTH112 - Path.is_dir may raise
        refuse("has no meaning for a folder of answers", pair=pair, task=task, data_dir=data_dir, split=split)
        refuse("has no meaning for a folder of answers", submission=submission, original_names=original_names or None)
        refuse("has no meaning for a folder of answers", original_padding=original_padding or None)
        refuse("is not needed for a folder of answers: the same command goes on", resume=resume or None)
        if len(policies) > 1 or input is None:
            raise OfframpError("expected a file or a folder to answer, and one policy")
        written: dict[str, Any] = {"format": format, "overwrite": overwrite, "rows_per_part": rows_per_part}
        written |= {"engine": engine, "workers": workers, **columns}
        predict_folder(model, opened, policies[0], input, out, settings, **written)
        return
    refuse("is for a folder of answers: name a folder of files, or say --engine ray", workers=workers)
    refuse("is for a folder of answers: name a folder of files, or say --engine ray", rows_per_part=rows_per_part)
    chosen = task_from_options(task, data_dir)
    engines = [
        Engine(opened, one, label_names=label_names(opened, chosen) if chosen else None, **settings) for one in policies
    ]
    if submission is not None:
        if chosen is None or input is not None:
            raise OfframpError("upload files are of a task's test rows: give --task and --data-dir, and no input")
        refuse("has no meaning with --submission", **columns, out=out, pair=pair, format=format, resume=resume or None)
        _submit(engines, chosen, split, submission, original_names)
        return
    if chosen is not None or split is not None or original_names:
        raise OfframpError("--task, --split and --original-names are for upload files: give --submission FOLDER, too")
    if input is None:
        raise OfframpError("nothing to answer: give a file, a text, or - for standard input")
    if len(engines) > 1:
        raise OfframpError("one policy at a time: several are for ELUE's upload files")
    beside, items = _input(opened, input, format, pair, **columns)
    if out is not None and out.exists() and Path(input).exists() and out.samefile(input):
        raise OfframpError(f"{out} is the input: name another file for the answers")
    begun = read_begun(out, (*beside, *ANSWER)) if resume and out is not None and out.exists() else None
    if begun is not None and begun.rows:
        _go_on(engines[0], items, begun, input)
    else:
        _answer_all(engines[0], items, open_writer(out, (*beside, *ANSWER), overwrite or begun is not None), out)


def _input(
    model: MultiExitModel,
    input: str,
    format: str | None,
    pair: str | None,
    text: str | None,
    text_pair: str | None,
    keep: str | None,
) -> tuple[list[str], Iterator[Item]]:
    """The columns that stand beside the answers, and what to answer."""
    from offramp.prediction import inputs

    columns = {"text": text, "text_pair": text_pair, "keep": keep}
    if input != "-" and not inputs.is_file_name(input):
        refuse(f"is for files, and {input!r} is none", **columns, format=format)
        return ["text"], iter([inputs.text_item(model, input, pair)])
    refuse("is for a text given as an argument: a file's columns are named with --text and --text-pair", pair=pair)
    if input == "-" and format in (None, inputs.LINES):
        refuse("names a column: say --format csv, tsv or jsonl", **columns)
        return [], inputs.line_items(model)
    if input != "-":
        refuse("is of standard input: a file's format is told by its name", format=format)
    if inputs.is_text_file(input):
        refuse(f"names a column, and {input} is plain text", **columns)
        return [], inputs.line_items(model, input)
    names, beside = inputs.kept_columns(keep)
    return beside, inputs.table_items(inputs.open_table(input, format), model, text, text_pair, names)


def _go_on(engine: Engine, items: Iterator[Item], begun: BegunFile, input: str) -> None:
    """Answer what is missing in a file; the last rows that it has are answered once more, and compared."""
    from offramp.prediction.inputs import answer_cells

    skipped = sum(1 for _ in islice(items, begun.rows - len(begun.last)))
    compared = list(islice(items, len(begun.last)))
    texts: list[Any] = [text for text, _ in compared]
    for (_, beside), prediction in zip(compared, engine(texts), strict=True):
        begun.must_be({**beside, **answer_cells(prediction)})
    begun.must_not_outlast(input, skipped + len(compared))
    typer.echo(f"{begun.path} holds the answers to {begun.rows:,} rows already: going on", err=True)
    engine.cut = 0
    _answer_all(engine, items, begun.writer(), begun.path)


def _answer_all(engine: Engine, items: Iterator[Item], writer: Writer, out: Path | None) -> None:
    """Answer and write, some rows at a time; say how far it came if it is stopped."""
    from offramp.prediction.files import LineWriter, heeding_ctrl_c
    from offramp.prediction.inputs import answer_cells
    from offramp.tasks.encoding import what_is_cut

    before = writer.written
    beside: deque[dict[str, object]] = deque()
    rows: list[dict[str, object]] = []
    failed, first = 0, ""

    def texts() -> Iterator[Any]:
        for item, kept in items:
            beside.append(kept)
            yield item

    try:
        answers = closing(engine.stream(texts()))
        with heeding_ctrl_c() as check, rows_progress() as count, answers as predictions:
            for prediction in predictions:
                rows.append({**beside.popleft(), **answer_cells(prediction)})
                if prediction.error is not None:
                    first = first or f"row {writer.written + len(rows)}: {prediction.error}"
                    failed += 1
                if len(rows) >= ROWS_AT_A_TIME or not beside:
                    writer.write(rows)
                    rows = []
                    count(writer.written)
                    check()
    except KeyboardInterrupt:
        if not writer.written:
            writer.close()
            if out is not None:
                out.unlink(missing_ok=True)
            raise Interrupted("stopped before the first answer: nothing was written") from None
        where = f"{out} holds their answers" if out else "their answers were written"
        again = "; --resume goes on from there" if isinstance(writer, LineWriter) and out else ""
        raise Interrupted(f"stopped after {writer.written:,} rows: {where}, whole lines only{again}") from None
    except OfframpError as error:
        if not writer.written:
            if out is not None:
                out.unlink(missing_ok=True)  # or the next try would be told that it exists
            raise
        where = f"{out} holds the answers" if out else "answers were written"
        raise OfframpError(f"{error}; {where} to the {writer.written:,} rows before") from error
    finally:
        writer.close()
    if out is not None:
        typer.echo(f"{out}: {writer.written:,} answers under {engine.policy}", err=True)
    if said := what_is_cut(engine.cut, writer.written - before, engine.encoder.max_length):
        typer.echo(said, err=True)
    if failed:
        raise OfframpError(f"{failed:,} of {writer.written - before:,} rows have no answer; the first is {first}")


def _answered(prediction: Prediction) -> tuple[str | float, int]:
    if prediction.label is None or prediction.exit_layer is None:
        raise OfframpError(f"a test row has no answer: {prediction.error}")
    return prediction.label, prediction.exit_layer


def _submit(engines: list[Engine], task: Task, split: str | None, folder: Path, original_names: bool) -> None:
    """One set of files for each policy and test split."""
    from offramp.prediction.inputs import takes_pairs
    from offramp.tasks.submission import write_submission

    splits = [split] if split else [name for name in task.splits if name.startswith("test")]
    if not splits:
        raise OfframpError(f"{task.name} has no test split here: it has {', '.join(task.splits)}")
    if len(engines) > 1 and task.name.startswith("glue/"):
        raise OfframpError("a GLUE upload is of one policy: give one")
    wants_pairs = takes_pairs(engines[0].model)
    if wants_pairs is not None and wants_pairs != task.pair:
        kinds = ("pairs of texts", "single texts") if wants_pairs else ("single texts", "pairs of texts")
        raise OfframpError(f"the model was trained on {kinds[0]}, and {task.name} is of {kinds[1]}: give its own model")
    for name in splits:
        _refuse_same_names(engines, task, name, original_names)
        examples = task.split(name)
        texts: list[Text] = (
            list(zip(examples.texts, examples.pairs, strict=True)) if examples.pairs else list(examples.texts)
        )
        for engine in engines:
            answers = (_answered(prediction) for prediction in engine.stream(texts))
            files = write_submission(
                folder, task.name, name, answers, operating_point=str(engine.policy), original_names=original_names
            )
            typer.echo(f"{', '.join(map(str, files))}: {len(texts):,} answers under {engine.policy}", err=True)


def _refuse_same_names(engines: list[Engine], task: Task, split: str, original_names: bool) -> None:
    """Policies that differ in a sign only would write to one file."""
    from offramp.tasks.benchmarks import find_benchmark
    from offramp.tasks.submission import submission_names

    bench = find_benchmark(task.name)
    names = [submission_names(bench, split, str(one.policy), original_names)[0] for one in engines]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise OfframpError(f"two policies would write {twice[0]}: give them one after another, to two folders")
