"""`offramp predict` into a folder of parts: a folder of files, or anything on Ray."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offramp.cli.predict_progress import rows_progress
from offramp.errors import Interrupted, OfframpError, needs

if TYPE_CHECKING:
    from offramp.models import MultiExitModel
    from offramp.policies import Policy
    from offramp.prediction.folder_run import Run
    from offramp.prediction.part_folder import PartFolder
    from offramp.prediction.parts import Job, Unreadable

PANEL = "A folder of answers"

EngineName = Annotated[
    str,
    typer.Option("--engine", help="local (this process) or ray (every machine of a cluster).", rich_help_panel=PANEL),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="On Ray; default: one for each GPU or else CPU of the cluster.", rich_help_panel=PANEL),
]
RowsPerPart = Annotated[
    int | None, typer.Option(min=1, help="Rows in a file of answers; default: 10000.", rich_help_panel=PANEL)
]


def predict_folder(
    name: str,
    model: MultiExitModel,
    policy: Policy | None,
    input: str,
    out: Path | None,
    options: dict[str, Any],
    *,
    text: str | None,
    text_pair: str | None,
    keep: str | None,
    format: str | None,
    engine: str,
    workers: int | None,
    rows_per_part: int | None,
    overwrite: bool,
) -> None:
    """Answer what is missing in the folder, and say what it holds."""
    from offramp.prediction.files import FORMATS
    from offramp.prediction.folder_run import find_files, settings_of, sources_of
    from offramp.prediction.inputs import kept_columns
    from offramp.prediction.part_folder import PartFolder
    from offramp.prediction.parts import RESERVED, ROWS_PER_PART, Job

    if out is None:
        raise OfframpError("answers in parts are several files: name a folder for them with --out")
    if out.suffix.lower().lstrip(".") in FORMATS and not out.is_dir():
        hint = f"--out {out.with_suffix('')} --format {out.suffix.lower().lstrip('.')}"
        raise OfframpError(f"{out}: these answers are a folder of parts; name a folder, such as {hint}")
    if format not in (None, *FORMATS):
        raise OfframpError(f"--format {format}: answers are written as {', '.join(FORMATS)}")
    run = _run(engine, workers, model)
    files, others = find_files(Path(input), out)
    kept, _ = kept_columns(keep, RESERVED)
    where = str(Path(name).absolute()) if Path(name).exists() else name  # workers start in other folders
    rows = rows_per_part or ROWS_PER_PART
    job = Job(where, policy, tuple(kept), str(out.absolute()), format or "jsonl", rows, options)
    sources, unreadable = sources_of(files, model, text, text_pair, kept)
    settings = settings_of(job, model, text, text_pair)
    with PartFolder(job, settings, sources, overwrite) as folder:
        if others:
            typer.echo(f"left out: {len(others):,} files that are no tables, the first is {others[0]}", err=True)
        unreadable += _answer(run, job, folder, out, complete=not unreadable)
    totals = folder.totals()
    typer.echo(
        f"{out}: {totals['rows']:,} answers of {totals['files']:,} files in {totals['parts']:,} parts under "
        f"{settings['policy']}",
        err=True,
    )
    if unreadable:
        raise OfframpError(
            f"{len(unreadable):,} of {len(files):,} files are not answered to their end; the first: "
            f"{unreadable[0].why}. Mend them, and run the same command again"
        )
    if totals["without_answer"]:
        failed = f"{totals['without_answer']:,} of {totals['rows']:,} rows have no answer"
        raise OfframpError(f"{failed}; the first is {folder.first_error()}")


def _run(engine: str, workers: int | None, model: MultiExitModel) -> Run:
    if engine == "ray":
        needs("ray", "ray")  # before anything is written
        from offramp.prediction.ray_files import answer_on_ray

        return partial(answer_on_ray, workers=workers)
    if engine != "local":
        raise OfframpError(f"--engine {engine}: expected local or ray")
    if workers is not None:
        raise OfframpError("--workers is for --engine ray")
    from offramp.prediction.folder_run import answer_here

    return partial(answer_here, model=model)


def _answer(run: Run, job: Job, folder: PartFolder, out: Path, complete: bool) -> list[Unreadable]:
    """Everything that is missing; the files that could not be read to their end. `complete`: there are no others."""
    from offramp.prediction.files import heeding_ctrl_c
    from offramp.prediction.parts import Unreadable

    unreadable = []
    missing = folder.missing()
    rows = before = folder.totals()["rows"]
    if missing and before:
        typer.echo(f"{out} holds the answers to {before:,} rows already: going on", err=True)
    try:
        with heeding_ctrl_c() as check, rows_progress() as count:
            for found in run(job, missing) if missing else ():
                if isinstance(found, Unreadable):
                    unreadable.append(found)
                else:
                    folder.record(found)
                    rows += found.rows
                count(rows)
                check()
    except KeyboardInterrupt:
        raise Interrupted(
            f"stopped with {rows:,} rows answered in {out}: the same command goes on from there"
        ) from None
    if complete and not unreadable:
        folder.finish()
    return unreadable
