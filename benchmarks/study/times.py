"""What a layer, an exit and the way in and out cost on this machine: with these, layers become time.

    python -m benchmarks.study.times --backbones DIR --out benchmarks/results/study

One model of each backbone with new exits answers made-up texts of 26 tokens on average: all leaving after layer 1, all
after the last layer, and all after the last layer with every exit asked on the way. A row then takes

    fixed + layers · (layer + exit)

and every operating point of the study is converted by that. It is a model of the time, not a measurement of each point.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.study import store
from benchmarks.study.grid import BACKBONES, Backbone
from benchmarks.study.training import Workplace
from offramp.bench.contestants import Offramp
from offramp.bench.machine import about_machine
from offramp.bench.timing import Rounds, interleave
from offramp.bench.workload import made_up_rows
from offramp.engine import Engine
from offramp.engine.backends import make_runner
from offramp.errors import OfframpError
from offramp.interop import load
from offramp.policies import Entropy, Fixed
from offramp.tasks.encoding import Row

SETTINGS = {"CPU, fp32, batch 1": ("fp32", 1), "CPU, int8, batch 1": ("int8", 1), "CPU, fp32, batch 32": ("fp32", 32)}
ROWS = 64
NEVER = Entropy(-1.0)
"""Asks every exit, and lets nobody go."""


def times_of(backbone: Backbone, folder: str, seconds: float, threads: int) -> dict[str, Any]:
    """The three numbers in each setting, in milliseconds a row."""
    found: dict[str, Any] = {}
    model = load(folder, num_labels=2, pooling=backbone.pooling)
    rows = made_up_rows(ROWS, model)
    for name, (precision, batch) in SETTINGS.items():
        try:
            engine = Engine(model, NEVER, "cpu", precision, threads=threads)
        except OfframpError as error:
            print(f"{backbone.name}, {name}: {error}")
            continue
        found[name] = measured(engine, rows, batch, seconds)
        found.setdefault("machine", about_machine(engine.setting))
    return found


def measured(engine: Engine, rows: list[Row], batch: int, seconds: float) -> dict[str, float]:
    depth = engine.model.exits.layers[-1]
    policies = {"first": Fixed(1), "last": Fixed(depth), "asked": NEVER}
    turns = {}
    for name, policy in policies.items():
        runner = make_runner(engine.model, policy, engine.setting)
        contestant = Offramp(name, engine, policy, runner)
        turns[name] = [partial(contestant.run, work) for work in contestant.batches(list(enumerate(rows)), batch)]
        for turn in turns[name]:
            turn()  # warm
    rounds = Rounds()
    interleave(turns, rounds, seconds, most_rounds=200, least_rounds=5)
    return parts({name: float(np.median(rounds.totals(name))) for name in turns}, depth, len(rows))


def parts(seconds: dict[str, float], depth: int, rows: int) -> dict[str, float]:
    """What three measured times say of a layer, an exit and the rest, in milliseconds a row."""
    layer = (seconds["last"] - seconds["first"]) / (depth - 1)
    exit = max(0.0, (seconds["asked"] - seconds["last"]) / (depth - 1))
    fixed = max(0.0, seconds["first"] - layer - exit)
    return {name: round(1000 * value / rows, 4) for name, value in (("fixed", fixed), ("layer", layer), ("exit", exit))}


def speed_up(times: dict[str, float], depth: int, layers: float) -> float:
    """How many times faster than the plain model at full depth, with one exit, a point of so many mean layers is."""
    plain = times["fixed"] + depth * times["layer"] + times["exit"]
    return plain / (times["fixed"] + layers * (times["layer"] + times["exit"]))


def path_of(out: Path, backbone: str) -> Path:
    return out / "times" / f"{backbone}.json"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbones", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/study"))
    parser.add_argument("--seconds", type=float, default=20, help="for each backbone and setting")
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args(arguments)
    place = Workplace(Path(), asked.backbones)
    for backbone in BACKBONES.values():
        try:
            folder = place.backbone(backbone.name)
        except OfframpError as error:
            print(error)
            continue
        found = times_of(backbone, folder, asked.seconds, asked.threads)
        store.write_whole(path_of(asked.out, backbone.name), found)
        print(backbone.name, found, flush=True)


if __name__ == "__main__":
    main()
