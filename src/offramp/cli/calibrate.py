"""`offramp calibrate`: a limit to what may be lost, instead of a guessed threshold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from offramp.cli.app import app
from offramp.cli.engine_options import Backend, BatchSize, Device, Fresh, Limit, MaxLength, Precision, Threads
from offramp.cli.evaluated_rows import rows_bar, rows_to_evaluate, splits_to_evaluate, trace_folder
from offramp.cli.refusal import refuse
from offramp.cli.task_options import Data, DataDir, LabelColumn, PairColumn, TaskName
from offramp.cli.task_options import TextColumn as TextOption
from offramp.errors import Interrupted, OfframpError
from offramp.shipped import refuse_to_change, resolve

if TYPE_CHECKING:
    from offramp.calibration import Calibration

EXAMPLES = """
Examples:

  offramp calibrate runs/sst2 --max-loss 0.01 --confidence 0.95

  offramp calibrate runs/reviews --data held-out.csv --max-loss 0.02

  offramp calibrate runs/reviews --data texts.csv --consistency --max-loss 0.01

  offramp calibrate runs/sst2 --max-cost 0.5

  offramp calibrate runs/sst2 --max-loss 0.01 --policy 'patience(3)' --dry-run
"""


@app.command("calibrate", epilog=EXAMPLES)
def calibrate_command(
    model: Annotated[Path, typer.Argument(help="Model folder.")],
    max_loss: Annotated[
        float | None, typer.Option(help="What may be lost, as a share: 0.01 is a point of accuracy.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="How sure to be that no more is lost.")] = 0.95,
    consistency: Annotated[
        bool, typer.Option("--consistency", help="Limit how many answers differ from full depth's: needs no labels.")
    ] = False,
    metric: Annotated[
        str | None, typer.Option(help="Whose loss is limited: accuracy, f1 or exact; default: the task's own.")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="How far a number may be from full depth's, with --consistency.")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(help="Instead of --max-loss: the best policy within this share of the layers.")
    ] = None,
    flops: Annotated[bool, typer.Option("--flops", help="With --max-cost: a share of the operations.")] = False,
    method: Annotated[
        str, typer.Option(help="fixed-sequence, bonferroni, or expectation (on average, not with a confidence).")
    ] = "fixed-sequence",
    bound: Annotated[
        str, typer.Option(help="exact (the tightest there is), betting, hoeffding-bentkus or hoeffding.")
    ] = "exact",
    policy: Annotated[
        str | None, typer.Option(help="Certify this one, such as 'entropy(0.1)'; default: look for the cheapest.")
    ] = None,
    task: TaskName = None,
    data_dir: DataDir = None,
    data: Data = None,
    text: TextOption = None,
    text_pair: PairColumn = None,
    label: LabelColumn = None,
    split: Annotated[str | None, typer.Option(help="Default: the first dev split; of an own file, all of it.")] = None,
    seed: Annotated[int, typer.Option(help="Which rows policies are looked for on, and which tested on.")] = 0,
    fresh: Fresh = False,
    max_length: MaxLength = None,
    batch_size: BatchSize = None,
    device: Device = "auto",
    precision: Precision = "auto",
    backend: Backend = "auto",
    threads: Threads = None,
    limit: Limit = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificate as JSON, on one line.")] = False,
) -> None:
    """Find the cheapest policy that is sure to lose no more than you allow, and make it the model's own.

    On rows that the model has not seen. What is found is written to policy.json in the model folder, with the record of
    how; predict, serve and bench use it from then on.
    """
    from offramp.calibration.refusals import check_limits
    from offramp.calibration.run import calibrate, limit_of
    from offramp.interop import load

    wishes: dict[str, Any] = {"max_loss": max_loss, "max_cost": max_cost, "confidence": confidence}
    wishes |= {"consistency": consistency, "metric": metric, "tolerance": tolerance, "flops": flops}
    wishes |= {"method": method.replace("-", "_"), "bound": bound.replace("-", "_"), "policy": policy, "seed": seed}
    _refuse_what_means_nothing(**wishes)
    check_limits(limit_of(max_loss, max_cost), confidence, wishes["method"])
    model = Path(resolve(model))
    if not model.is_dir():
        raise OfframpError(f"{model} is no folder: a calibrated policy is written into the model's")
    if not dry_run:
        refuse_to_change(model)
    opened = load(model)
    own_metric = metric if data is not None and task is None and opened.objective.name != "span" else None
    rows = rows_to_evaluate(opened, task, data_dir, data, text, text_pair, label, own_metric)
    chosen = splits_to_evaluate(rows, split, data)[0]
    how: dict[str, Any] = {"max_length": max_length, "batch_size": batch_size, "precision": precision, "fresh": fresh}
    how |= {"limit": limit, "backend": backend, "threads": threads, "device": device}
    how |= {"out": trace_folder(model, rows, chosen, data), "dry_run": dry_run}
    try:
        with rows_bar(chosen) as on_rows:
            found = calibrate(opened, rows, split=chosen, on_rows=on_rows, **wishes, **how)
    except KeyboardInterrupt:
        raise Interrupted(f"stopped: {model} has the policy that it had") from None
    if as_json and found.certificate is not None:
        typer.echo(json.dumps(found.certificate.to_json(), ensure_ascii=False))
    else:
        _show(found, model)


def _refuse_what_means_nothing(**wishes: Any) -> None:
    asked = {name: value or None for name, value in wishes.items()}
    if wishes["max_cost"] is not None:
        why = "goes with --max-loss: of what may be computed, the best policy is taken"
        refuse(why, consistency=asked["consistency"], metric=asked["metric"], tolerance=wishes["tolerance"])
    else:
        refuse("goes with --max-cost", flops=asked["flops"])
    if not wishes["consistency"]:
        refuse("goes with --consistency", tolerance=wishes["tolerance"])
    else:
        refuse("has no part in --consistency, which compares answers", metric=wishes["metric"])


def _show(found: Calibration, model: Path) -> None:
    from offramp.bench.tables import counted
    from offramp.calibration.tables import calibration_table

    console = Console(highlight=False)
    lines = [f"policy: {found.policy}"]
    lines += [] if found.gate_threshold is None else [f"gates: their logits from {found.gate_threshold:g} on"]
    passed = sum(one.passes for one in found.tested)
    lines.append(f"path: {found.path}; {passed} of {counted(len(found.tested), 'tested point')} passed")
    if found.files:
        lines.append(f"{model}: {', '.join(str(path.relative_to(model)) for path in found.files)}")
        lines.append(f"predict, serve and bench use it from now on: offramp bench {model}")
    else:
        lines.append("nothing was written (--dry-run)")
    console.print(f"[bold]{escape(str(model))}[/bold]: {found.promise}", soft_wrap=True)
    console.print(calibration_table(found))
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)
