"""Whether `offramp calibrate` keeps its promises, what it leaves on the table, and how long it takes.

    python benchmarks/calibration.py --json benchmarks/results/calibration.json

Rows are drawn again and again from populations of which every risk is known: the traces of real models (without
replacement) and made ones, some as nasty as they can be (with replacement, so that nothing is finite). A promise is
broken where the policy that was certified on the drawn rows has a risk over the limit in its population.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from calibration_populations import POPULATIONS, VALUES, Population, Rows, cells_of, population_of, risk_of, smooth
from engine import write
from numpy.typing import NDArray
from scipy import stats

from offramp.calibration import Promise, Uncertified, calibrate_trace
from offramp.calibration.calibrate import DESIGN, IN_ADVANCE, MOST_DESIGN, SAVES
from offramp.calibration.choosing import choose_path
from offramp.calibration.losses import AccuracyGap, F1Gap, Inconsistency, Loss
from offramp.calibration.paths import path_in_advance, paths
from offramp.evaluation import Trace
from offramp.policies import Policy

LIMITS = {200: 0.05, 1000: 0.02, 4000: 0.01}
"""By rows: what so many can show."""
AGAIN = {200: 10, 1000: 10, 4000: 40}
"""By rows: draws that a path is tested on."""
DELTA = 0.05
BOUNDS = ("exact", "betting", "hoeffding_bentkus", "hoeffding")
LOSSES: tuple[Loss, ...] = (*map(Inconsistency, BOUNDS), *map(AccuracyGap, BOUNDS), F1Gap())
TURNS: tuple[Loss, ...] = (Inconsistency(), AccuracyGap(), F1Gap())
SAME = {
    name: np.unique(values, return_inverse=True)[1][:, None] == np.arange(len(np.unique(values)))
    for name, values in VALUES.items()
}
"""By loss, which cells have which of its values: (8, values)."""
SURE = 0.999
"""How improbable a count of broken promises must be to count against a method."""
PARTS = ("speed", "agreement", "power", "validity")

Measure = dict[str, Any]
Job = tuple[Any, ...]
Risks = list[float | None]
"""None where nothing was certified."""


@lru_cache(400_000)
def pvalue(loss: Loss, counts: tuple[int, ...], limit: float) -> float:
    """Of how often each value was seen; kept, since the same counts come again and again."""
    return loss.pvalue(np.repeat(np.unique(VALUES[loss.name]), counts), limit)


@dataclass
class Sequence:
    """A path as the drawn rows see it."""

    policies: list[Policy]
    cells: NDArray[np.int8]
    """(P, n)"""
    costs: NDArray[np.float64]
    share: float

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        return np.stack([np.bincount(row, minlength=8) for row in self.cells])

    @cached_property
    def seen(self) -> dict[str, list[tuple[int, ...]]]:
        """By loss, how often each of its values was seen at each point."""
        return {name: [tuple(row) for row in (self.counts @ same).tolist()] for name, same in SAME.items()}

    @cached_property
    def risks(self) -> dict[str, NDArray[np.float64]]:
        return {loss.name: np.array([risk_of(loss, counts) for counts in self.counts]) for loss in TURNS}

    def certified(self, loss: Loss, limit: float, method: str) -> int | None:
        """What `certify` and `chosen` say; cheap points first where their order does not matter."""
        if method == "expectation":
            highest = np.maximum.accumulate(VALUES[loss.name][self.cells], axis=0).sum(1)
            passing = np.flatnonzero((highest + 1) / (self.cells.shape[1] + 1) <= limit)
            return int(passing[self.costs[passing].argmin()]) if len(passing) else None
        error = DELTA * self.share
        seen = self.seen[loss.name]
        if method == "fixed_sequence":
            last = None
            for place, counts in enumerate(seen):
                if pvalue(loss, counts, limit) > error:
                    break
                last = place if last is None or self.costs[place] < self.costs[last] else last
            return last
        allowed = self.risks[loss.name] < limit  # no other passes
        for place in self.costs.argsort(kind="stable"):
            if allowed[place] and pvalue(loss, seen[place], limit) <= error / len(self.policies):
                return int(place)
        return None


def promised(loss: Loss, limit: float, sequences: list[Sequence], method: str) -> Policy | None:
    """The policy that `calibrate_trace` would return."""
    best: tuple[float, Policy] | None = None
    for sequence in sequences[: 1 if method == "expectation" else 2]:
        place = sequence.certified(loss, limit, method)
        if place is not None and sequence.costs[place] <= 1 - SAVES:
            found = float(sequence.costs[place]), sequence.policies[place]
            best = found if best is None or found[0] < best[0] else best
    return best[1] if best else None


def sequences_of(population: Population, rows: Rows, rest: Rows, path: list[Policy]) -> list[Sequence]:
    policies, cells, layers = population.in_advance
    depth = population.trace.depth
    first = Sequence(list(policies), cells[:, rows], layers[:, rows].mean(1) / depth, IN_ADVANCE)
    others = population.trace.take(rest)
    exits = [others.exits(policy) for policy in path]
    costs = np.array([np.asarray(others.exit_layers)[one].mean() / depth for one in exits])
    return [first, Sequence(path, np.stack([cells_of(others, one) for one in exits]), costs, 1 - IN_ADVANCE)]


def splits(
    population: Population, n: int, limit: float, draws: int, seed: int
) -> Iterator[tuple[Rows, list[Sequence]]]:
    """Rows, and what is tested on them.

    A path takes long to make. So one that was made on some rows is tested on several draws of others (what is promised
    holds whatever the path is), and the losses take turns in choosing it.
    """
    draw = np.random.default_rng([seed, n])
    order = np.random.default_rng(0).permutation(n)
    cut = int(DESIGN * n)
    for number in range(draws):
        if number % AGAIN[n] == 0:
            made_on = population.draw(draw, cut)
            turn = TURNS[number // AGAIN[n] % len(TURNS)]
            path = choose_path(population.trace.take(made_on), turn, limit, 1 - DELTA, n - cut)
        rest = population.draw(draw, n - cut, made_on)
        rows = np.empty(n, np.int64)
        rows[order[:cut]], rows[order[cut:]] = made_on, rest
        yield rows, sequences_of(population, rows, rest, [point.policy for point in path.points])


def methods_of(loss: Loss) -> tuple[str, ...]:
    with_expectation = loss.bound == "exact" and loss.name != "f1"
    return ("fixed_sequence", "bonferroni", *(("expectation",) if with_expectation else ()))


def risks_on(name: str, n: int, draws: int, seed: int) -> dict[tuple[Loss, str], Risks]:
    """The true risks of what each loss and method chose, None where nothing was certified."""
    limit = LIMITS[n]
    population = population_of(name, limit)
    found: dict[tuple[Loss, str], Risks] = defaultdict(list)
    for _, sequences in splits(population, n, limit, draws, seed):
        for loss in LOSSES:
            for method in methods_of(loss):
                policy = promised(loss, limit, sequences, method)
                found[loss, method].append(None if policy is None else population.risk(policy, loss))
    return dict(found)


def verdict(risks: Risks, limit: float, method: str) -> tuple[float, float, bool]:
    """What is compared, with what, and whether the promise was kept as often as was said."""
    risk = np.array([0.0 if one is None else one for one in risks])
    if method == "expectation":
        most = limit + float(stats.norm.ppf(SURE) * risk.std() / np.sqrt(len(risk)))
        return float(risk.mean()), most, float(risk.mean()) <= most
    broken = int((risk > limit).sum())
    most = float(stats.binom.ppf(SURE, len(risk), DELTA))
    return broken / len(risk), most / len(risk), broken <= most


def validity(pool: Any, draws: int, parts: int = 2) -> Iterator[Measure]:
    """Of every loss, bound and method, the population and the number of rows where it came nearest to failing."""
    jobs = [(name, n, draws // parts, seed) for n in LIMITS for name in POPULATIONS for seed in range(parts)]
    tables: dict[tuple[str, int], dict[tuple[Loss, str], Risks]] = {}
    for (name, n, *_), found in _done(pool, risks_on, jobs):
        table = tables.setdefault((name, n), {})
        for key, risks in found.items():
            table[key] = table.get(key, []) + risks
    for loss in LOSSES:
        for method in methods_of(loss):
            yield _of_all(loss, method, {where: table[loss, method] for where, table in tables.items()})


def _done(pool: Any, function: Callable[..., Any], jobs: list[Job]) -> Iterator[tuple[Job, Any]]:
    """Jobs with what they gave."""
    waiting = [pool.apply_async(function, job) for job in jobs]
    for job, one in zip(jobs, waiting, strict=True):
        yield job, one.get()
        print(function.__name__, *job, flush=True)


def _of_all(loss: Loss, method: str, by_place: dict[tuple[str, int], Risks]) -> Measure:
    cells, worst = [], (-np.inf, 0.0, 0.0)
    for (name, n), risks in by_place.items():
        value, most, kept = verdict(risks, LIMITS[n], method)
        certified = round(float(np.mean([risk is not None for risk in risks])), 3)
        about = {"population": name, "rows": n, "limit": LIMITS[n], "splits": len(risks), "certified": certified}
        cells.append({**about, "value": round(value, 5), "at_most": round(most, 5), "kept": kept})
        worst = max(worst, (value / most, value, most))
    what = "mean risk" if method == "expectation" else "share of splits over the limit"
    name = f"validity: {loss.name}, {loss.bound}, {method}: largest {what}"
    cells.sort(key=lambda cell: (POPULATIONS.index(cell["population"]), cell["rows"]))
    detail = {"compared_with": "at most", "kept": all(cell["kept"] for cell in cells), "delta": DELTA, "of": cells}
    return {"measure": name, "value": round(worst[1], 5), "target": round(worst[2], 5), "detail": detail}


def agreement(name: str, n: int, draws: int = 3) -> tuple[int, int]:
    """How often the shortcuts taken here choose what `calibrate_trace` does, and out of how often."""
    limit = LIMITS[n]
    population = population_of(name, limit)
    same = asked = 0
    for number, (rows, sequences) in enumerate(splits(population, n, limit, draws * AGAIN[n], seed=7)):
        if number % AGAIN[n]:
            continue
        loss = TURNS[number // AGAIN[n] % len(TURNS)]
        for method in methods_of(loss):
            try:
                theirs = calibrate_trace(population.trace.take(rows), Promise(loss, limit, 1 - DELTA, method)).policy
            except Uncertified:
                theirs = None
            same += promised(loss, limit, sequences, method) == theirs
            asked += 1
    return same, asked


def agreements(pool: Any) -> Iterator[Measure]:
    jobs = [(name, n) for name in POPULATIONS for n in LIMITS]
    same, asked = np.sum([found for _, found in _done(pool, agreement, jobs)], axis=0).tolist()
    name = "validity: choices that are calibrate_trace's own"
    yield {"measure": name, "value": same / asked, "target": 1.0} | {
        "detail": {"compared_with": "at least", "asked": asked}
    }


def savings(name: str, n: int, limit: float, draws: int, seed: int) -> dict[tuple[str, str], list[float]]:
    """The true saving of what was certified, by loss and bound, and of the oracle: it knows the risks."""
    population = population_of(name)
    draw = np.random.default_rng([seed, n, 1])
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(draws):
        made_on = population.draw(draw, int(DESIGN * n))
        rest = population.draw(draw, n - len(made_on), made_on)
        design, rows = population.trace.take(made_on), np.concatenate([made_on, rest])
        for loss in (Inconsistency(), AccuracyGap()):
            made = [point.policy for path in paths(design, loss) for point in path.points]
            path = choose_path(design, loss, limit, 1 - DELTA, len(rest))
            sequences = sequences_of(population, rows, rest, [point.policy for point in path.points])
            for bound in ("exact", "hoeffding"):
                policy = promised(replace(loss, bound=bound), limit, sequences, "fixed_sequence")
                found[loss.name, bound].append(0.0 if policy is None else 1 - population.truth(policy)[1])
            allowed = [
                population.truth(one)[1]
                for one in [*population.in_advance[0], *made]
                if population.risk(one, loss) <= limit
            ]
            found[loss.name, "oracle"].append(1 - min(allowed, default=1.0))
    return dict(found)


def power(pool: Any, draws: int, n: int = 2000, limit: float = 0.01, parts: int = 10) -> Iterator[Measure]:
    jobs = [(name, n, limit, draws // parts, seed) for name in ("sst2", "imdb", "smooth") for seed in range(parts)]
    tables: dict[str, dict[tuple[str, str], list[float]]] = {}
    for (name, *_), found in _done(pool, savings, jobs):
        for key, saved in found.items():
            tables.setdefault(name, {}).setdefault(key, []).extend(saved)
    for name, table in tables.items():
        for loss in ("inconsistency", "accuracy"):
            of = {kind: np.array(table[loss, kind]) for kind in ("exact", "hoeffding", "oracle")}
            means = {kind: float(saved.mean()) for kind, saved in of.items()}
            errors = {kind: round(float(saved.std(ddof=1) / np.sqrt(len(saved))), 4) for kind, saved in of.items()}
            rest = of["exact"] - means["exact"] / means["oracle"] * of["oracle"]  # of a ratio of means
            detail = {
                "compared_with": "at least",
                "standard_error": round(float(rest.std(ddof=1) / np.sqrt(len(rest)) / means["oracle"]), 4),
                "of_plain_hoeffding": round(means["hoeffding"] / means["oracle"], 4),
                "mean_saving": {kind: round(mean, 4) for kind, mean in means.items()},
                "standard_error_of_saving": errors,
                "rows": n,
                "limit": limit,
                "delta": DELTA,
                "splits": len(rest),
            }
            value = round(means["exact"] / means["oracle"], 4)
            yield {"measure": f"power: {loss}, {name}: share of the oracle's layer saving", "value": value} | {
                "target": 0.85,
                "detail": detail,
            }


def speed(rows: int = 100_000) -> Iterator[Measure]:
    """One thread, twelve exits, three labels."""
    trace = in_three(smooth(rows, 12))
    design = trace.take(np.arange(int(DESIGN * MOST_DESIGN)))
    points = len(path_in_advance(trace)) + sum(len(path.points) for path in paths(design, Inconsistency()))
    for loss in (Inconsistency(), AccuracyGap()):
        started = time.perf_counter()
        found = calibrate_trace(trace, Promise(loss, 0.01, 1 - DELTA))
        seconds = time.perf_counter() - started
        detail = {"compared_with": "at most", "candidate_points": points, "threads": torch.get_num_threads()}
        detail |= {"policy": str(found.policy), "cost": round(found.point.cost, 4)}
        name = f"speed: {rows:,} rows × 12 exits × 3 labels, {loss.name}, seconds"
        yield {"measure": name, "value": round(seconds, 2), "target": 10, "detail": detail}


def in_three(trace: Trace) -> Trace:
    """The same with a third label, which is never the answer, and sometimes the truth."""
    third = trace.logits.min(-1, keepdims=True) - 1
    labels = np.where(np.arange(len(trace)) % 50 == 0, 2, trace.labels)
    names = ("0", "1", "2")
    shape = replace(trace.shape, classes=3)
    return replace(
        trace, logits=np.concatenate([trace.logits, third], -1), labels=labels, label_names=names, shape=shape
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=1000)
    parser.add_argument("--power-splits", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with get_context("spawn").Pool(arguments.processes) as pool:
        parts: dict[str, Callable[[], Iterable[Measure]]] = {
            "speed": speed,
            "agreement": partial(agreements, pool),
            "power": partial(power, pool, arguments.power_splits),
            "validity": partial(validity, pool, arguments.splits),
        }
        for part in arguments.only:
            started = time.perf_counter()
            write(list(parts[part]()), arguments.json)
            print(f"{part}: {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
