"""One run: contestants are made, checked, and timed side by side at each batch size."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from offramp.bench.checking import check_answers
from offramp.bench.contestants import Contestant, Numbered, Offramp, own_pair
from offramp.bench.machine import about_machine
from offramp.bench.results import BenchResults, ExitGain, Timing, Workload
from offramp.bench.rivals import make_rivals
from offramp.bench.timing import PAUSE, Rounds, interleave, seconds_of
from offramp.bench.workload import by_length, cut
from offramp.engine import Engine
from offramp.engine.torch_threads import torch_threads
from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.policies import Fixed, Policy, Scripted
from offramp.tasks.encoding import Row

CHECKED = 6
"""Rows whose answers are compared with the reference before anything is timed."""
PROBE = 8
"""Rows by which the time of a row is guessed."""
LEAST_ROWS = 8
LEAST_STREAM = 128
"""Rows: in fewer there is nothing to sort."""
GOOD_ROUNDS = 5
"""As many as are aimed at when rows are chosen to fit the time."""
MOST_ROUNDS = 200

OnProgress = Callable[[str], None]


@dataclass
class Bench:
    """Measures; `results` can be asked for at any time, and holds the batch sizes that are done."""

    model: MultiExitModel
    name: str
    policy: Policy
    rows: Sequence[Row]
    device: str = "auto"
    precision: str = "auto"
    backend: str = "auto"
    threads: int | None = None
    seconds: float = 60.0
    settings: dict[str, Any] = field(default_factory=dict)
    on_progress: OnProgress = lambda what: None
    contestants: list[Contestant] = field(default_factory=list, init=False)
    pairs: list[tuple[Offramp, Offramp]] = field(default_factory=list, init=False)
    skipped: dict[str, str] = field(default_factory=dict, init=False)
    workloads: list[Workload] = field(default_factory=list, init=False)

    def run(self, batch_sizes: Sequence[int | None]) -> BenchResults:
        """Measure at each batch size; None is a stream."""
        if not self.rows:
            raise OfframpError("there are no rows to measure with: give some texts")
        with torch_threads(self.threads or torch.get_num_threads()):
            return self._run(batch_sizes)

    def _run(self, batch_sizes: Sequence[int | None]) -> BenchResults:
        self.on_progress("making the contestants")
        self._make_contestants()
        numbered = list(enumerate(self.rows))
        self.on_progress("checking their answers")
        self.settings["notes"] = check_answers(self.model, self.contestants, numbered[:CHECKED])
        a_row = sum(self._seconds_of_a_row(contestant, numbered) for contestant in self.contestants)
        for size in batch_sizes:
            self.on_progress("timing a stream" if size is None else f"timing batches of {size}")
            self.workloads.append(self._measure(numbered, size, a_row, self.seconds / len(batch_sizes)))
            a_row = sum(1 / timing.texts_per_second for timing in self.workloads[-1].timings)
        return self.results()

    def results(self) -> BenchResults:
        """What was measured so far."""
        return BenchResults(
            model=self.name,
            policy="scripted exits" if isinstance(self.policy, Scripted) else str(self.policy),
            depth=self.model.backbone.depth,
            mean_tokens=sum(map(len, self.rows)) / len(self.rows),
            workloads=list(self.workloads),
            skipped=self.skipped,
            settings=self.settings,
        )

    def _make_contestants(self) -> None:
        """Our engine in the precision asked for, or on a CPU in both that are fast there; and the rivals."""
        engine = Engine(self.model, self.policy, self.device, self.precision, self.backend, threads=self.threads)
        engines = [engine]
        if self.precision == "auto" and engine.setting.device.type == "cpu":
            try:
                engines.append(Engine(self.model, self.policy, self.device, "int8", self.backend, threads=self.threads))
            except OfframpError as error:
                self.skipped["offramp int8"] = str(error)
        self.pairs = [own_pair(one, Fixed(self.model.backbone.depth)) for one in engines]
        rivals, skipped = make_rivals(self.model, engine.setting)
        self.skipped |= skipped
        self.contestants = [*(one for pair in self.pairs for one in reversed(pair)), *rivals]
        self.settings |= {"engine": str(engine.setting), "machine": about_machine(engine.setting)}

    @staticmethod
    def _seconds_of_a_row(contestant: Contestant, rows: Numbered) -> float:
        """Of rows one at a time, roughly; the first runs, of a row alone and of several, are for warming up."""
        some = rows[:PROBE]
        contestant.run(contestant.prepare(some))
        alone = contestant.batches(some, 1)
        contestant.run(alone[0])
        return sum(seconds_of(partial(contestant.run, work)) for work in alone) / len(some)

    def _measure(self, rows: Numbered, size: int | None, a_row: float, budget: float) -> Workload:
        """As many rows as there is time for in several rounds, in whole batches; a few in any case."""
        at_a_time = size or LEAST_STREAM
        least = -(-LEAST_ROWS // at_a_time) * at_a_time
        for_a_round = budget / GOOD_ROUNDS - PAUSE * len(self.contestants)
        affordable = int(for_a_round / a_row) // at_a_time * at_a_time
        chosen = spread(rows, max(affordable, least) // at_a_time, size) if size else rows[: max(affordable, least)]
        taking_part = [one for one in self.contestants if not (size == 1 and one.only_in_batches)]
        batches = {
            one.name: [partial(one.run, work) for work in (one.batches(chosen, size) if size else one.stream(chosen))]
            for one in taking_part
        }
        rounds, warm_up = Rounds(), Rounds()
        started = time.perf_counter()
        once = batches if affordable >= least else {name: turns[:1] for name, turns in batches.items()}
        interleave(once, warm_up, 0, 1)
        for own in (one for pair in self.pairs for one in pair):
            own.finished.clear()
        interleave(batches, rounds, budget - (time.perf_counter() - started), MOST_ROUNDS)
        return self._workload(taking_part, rounds, size, len(chosen))

    def _workload(self, taking_part: Sequence[Contestant], rounds: Rounds, size: int | None, rows: int) -> Workload:
        names = [one.name for one in taking_part]
        timings = []
        for one in taking_part:
            median, p95 = (None, None) if size is None else rounds.latency(one.name)
            timings.append(
                Timing(
                    one.name,
                    one.precision,
                    rounds.rate(one.name, rows),
                    None if median is None else 1000 * median,
                    None if p95 is None else 1000 * p95,
                    rounds.seconds(one.name).size,
                )
            )
        fastest = rounds.fastest(names)
        layers = self.pairs[0][1].mean_layers()
        return Workload(
            batch_size=size,
            rows=rows,
            rounds=len(rounds),
            mean_layers=layers,
            ideal=self.model.backbone.depth / layers,
            timings=timings,
            gains=[ExitGain(full.precision, rounds.ratio(full.name, exits.name)) for full, exits in self.pairs],
            fastest=fastest,
            faster_than={name: rounds.ratio(name, fastest) for name in names if name != fastest},
        )


def spread(rows: Numbered, batches: int, size: int) -> Numbered:
    """So many batches of the sorted rows, short to long, in the order they were given.

    Few rows sorted by length would differ in it more than many do, and whoever pads would be wronged.
    """
    by_size = cut(by_length(rows), size)
    whole = [batch for batch in by_size if len(batch) == size] or by_size
    picked = np.unique(np.linspace(0, len(whole) - 1, min(batches, len(whole)) + 2)[1:-1].round().astype(int))
    if batches >= len(whole):
        picked = np.arange(len(whole))
    return sorted((row for place in picked for row in whole[place]), key=lambda numbered: numbered[0])
