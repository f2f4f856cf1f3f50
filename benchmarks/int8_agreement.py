"""Does int8 answer as fp32 does? Labels and scores of a trained model on a dev split, under several policies.

    python benchmarks/int8_agreement.py MODEL --data-dir glue --json benchmarks/results/engine_cpu.json

The model is one that `offramp train` made: its folder says the task. The numbers in the results are of a MiniLM
(6 layers, 384 wide) trained by

    offramp train --task sst-2 --recipe elasticbert --epochs 1 --batch-size 128 --learning-rate 1e-4

on dev, and, since the first three exits of that one learnt nothing, of one trained by the same recipe for an epoch on
20,000 rows of SST-2 with `--pooling mean --batch-size 64`, on 10,000 others (as calibration_traces.py cuts them).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from engine import Measure, write

import offramp
from offramp.bench.machine import about_machine
from offramp.engine import Engine
from offramp.models import MultiExitModel
from offramp.tasks.labels import in_model_order
from offramp.tasks.task import Examples, Task
from offramp.tasks.trained import trained_task

POLICIES = ("entropy(0.1)", "entropy(0.3)", "confidence(0.9)")
ALIKE, POINTS = 0.99, 0.3
"""Of the labels at least this share, and of the score at most so many points."""


def answers(model: MultiExitModel, policy: str, precision: str, examples: Examples) -> tuple[Engine, list[str]]:
    engine = Engine(model, policy, "cpu", precision, "onnx")
    return engine, [str(prediction.label) for prediction in engine(examples.texts)]


def agreement(model: MultiExitModel, task: Task, policy: str, rows: str | None) -> list[Measure]:
    examples = task.split(task.dev_splits[0])
    names = np.array([name for _, name in sorted(model.config.id2label.items())])
    truth = names[np.asarray(in_model_order(model, task, examples))]
    engine, exact = answers(model, policy, "fp32", examples)
    _, rounded = answers(model, policy, "int8", examples)
    scores = {kind: float(np.mean(truth == said)) for kind, said in (("fp32", exact), ("int8", rounded))}
    detail = {"rows": len(truth), "accuracy": scores, "machine": about_machine(engine.setting)}
    same = float(np.mean(np.array(exact) == rounded))
    lost = 100 * abs(scores["fp32"] - scores["int8"])
    name = f"{rows or f'{task.name} dev'}, {policy}"
    return [
        {
            "measure": f"{name}: share of labels that int8 and fp32 agree on",
            "value": round(same, 4),
            "target": ALIKE,
            "detail": {"compared_with": "at least", **detail},
        },
        {
            "measure": f"{name}: points of accuracy between int8 and fp32",
            "value": round(lost, 2),
            "target": POINTS,
            "detail": {"compared_with": "at most", **detail},
        },
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--task")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--name", help="what the rows are called; default: the task's dev rows")
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    model = offramp.load(arguments.model)
    task = offramp.task(arguments.task, data_dir=arguments.data_dir) if arguments.task else trained_task(model)
    measures = [measure for policy in POLICIES for measure in agreement(model, task, policy, arguments.name)]
    for measure in measures:
        print(f"{measure['value']:8.4f}  {measure['target']:6.2f}  {measure['measure']}")
    write(measures, arguments.json)


if __name__ == "__main__":
    main()
