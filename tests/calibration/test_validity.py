"""Promises are kept as often as is said, over many draws from populations whose risks are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from calibration import DELTA, LIMITS, LOSSES, Risks, agreement, methods_of, promised, risks_on, splits, verdict
from calibration_populations import POPULATIONS, TRACES, population_of
from scipy import stats

from offramp.calibration.losses import Cost, Inconsistency
from offramp.calibration.paths import path_in_advance
from offramp.evaluation import Trace
from tests.evaluation.made_traces import gated_trace, random_trace

FAST = [("edge", 200), ("edge of pairs", 200), ("edge of F1", 200), ("jumps", 1000), ("imdb", 200), ("smooth", 200)]


def check(name: str, n: int, draws: int) -> None:
    found = risks_on(name, n, draws, seed=0)
    assert set(found) == {(loss, method) for loss in LOSSES for method in methods_of(loss)}
    for (loss, method), risks in found.items():
        value, most, kept = verdict(risks, LIMITS[n], method)
        assert kept, f"{loss}, {method}: {value}, more than {most}"


@pytest.mark.parametrize(("name", "n"), FAST)
def test_promises_are_kept(name: str, n: int) -> None:
    check(name, n, draws=100)


@pytest.mark.slow
@pytest.mark.parametrize("n", LIMITS)
@pytest.mark.parametrize("name", POPULATIONS)
def test_promises_are_kept_a_thousand_times(name: str, n: int) -> None:
    check(name, n, draws=1000)


@pytest.mark.parametrize("name", ["edge", "jumps", "imdb"])
def test_what_was_not_tested_is_found_out(name: str) -> None:
    """The cheapest point whose observed risk is below the limit keeps no promise."""
    population, limit = population_of(name, LIMITS[200]), LIMITS[200]
    risks: Risks = []
    for _, (sequence, _) in splits(population, 200, limit, 100, seed=0):
        below = np.flatnonzero(sequence.risks["inconsistency"] <= limit)
        policy = sequence.policies[below[sequence.costs[below].argmin()]] if len(below) else None
        risks.append(None if policy is None else population.risk(policy, Inconsistency()))
    assert not verdict(risks, limit, "fixed_sequence")[2]


def test_something_is_certified() -> None:
    """Else no promise could be broken."""
    population, limit = population_of("imdb"), LIMITS[1000]
    for _, sequences in splits(population, 1000, limit, 3, seed=1):
        for method in ("fixed_sequence", "bonferroni", "expectation"):
            assert promised(Inconsistency(), limit, sequences, method) is not None


@pytest.mark.parametrize("name", ["sst2", "jumps"])
def test_the_shortcut_taken_here_is_none(name: str) -> None:
    same, asked = agreement(name, 200, draws=3)
    assert same == asked > 5


@pytest.mark.parametrize("tested", [True, False])
def test_budgets_are_kept_if_they_are_tested(tested: bool) -> None:
    """What may be computed is a promise like any other: its loss is the cost. By what was seen alone it is not kept."""
    trace, limit, draws = Trace.load(TRACES / "imdb.npz"), 0.5, 200
    loss, draw = Cost(), np.random.default_rng(4)
    costs = np.stack([loss.observe(trace, trace.exits(policy)) for policy in path_in_advance(trace)[::-1]])
    over = 0
    for _ in range(draws):
        seen = costs[:, draw.choice(len(trace), 200, replace=False)]
        passes = [loss.pvalue(own, limit) <= DELTA if tested else own.mean() <= limit for own in seen]
        passed = costs[: passes.index(False)]
        assert len(passed)
        over += passed.mean(1).max() > limit
    assert (over <= stats.binom.ppf(0.999, draws, DELTA)) == tested


@pytest.mark.parametrize("bound", ["exact", "hoeffding_bentkus"])
def test_a_share_of_the_operations_is_that_of_all_texts_together(bound: str) -> None:
    """Long texts leave late: each text's share is a third on the mean, and two thirds of all operations are done."""
    draw, size, loss = np.random.default_rng(0), 20_000, Cost(bound, flops=True)
    short = draw.random(size) < 0.8
    lengths = np.where(short, draw.integers(5, 20, size), draw.integers(100, 129, size))
    trace = random_trace(samples=size, lengths=lengths, max_length=128)
    exits = np.where(short, 0, np.where(draw.random(size) < 0.6, 5, 3))
    observed = loss.observe(trace, exits)
    used, full = trace.ebert_mflops[exits, np.arange(size)], trace.full_depth_mflops
    spent = used.sum() / full.sum()
    assert loss.risk(observed) == pytest.approx(spent)
    assert spent > 0.6
    assert (used / full).mean() < 0.4

    def passes(limit: float, test: str, rows: int, draws: int) -> int:
        drawn = (observed[draw.integers(0, size, rows)] for _ in range(draws))
        return sum(getattr(loss, test)(one, limit) <= DELTA for one in drawn)

    for test, limit in (("pvalue", spent - 1e-9), ("pvalue_within", spent + 1e-9)):
        assert passes(limit, test, 300, 200) <= stats.binom.ppf(0.999, 200, DELTA)
    assert passes(spent + 0.15, "pvalue", 4000, 10) == 10
    assert passes(spent - 0.25, "pvalue_within", 4000, 10) == 10


def test_gates_that_are_raised_may_keep_more_of_a_text_than_their_own() -> None:
    """Nothing is cut off at full depth's operations."""
    trace = gated_trace()
    raised = trace.compared_with(replace(trace, heads_kept=np.zeros_like(trace.heads_kept)))
    exits = raised.all_at(5)
    spent = raised.ebert_mflops[-1].sum() / raised.full_depth_mflops.sum()
    loss = Cost(flops=True)
    assert loss.risk(loss.observe(raised, exits)) == pytest.approx(spent)
    assert spent > 1
    assert loss.pvalue(loss.observe(raised, exits), 0.99) == 1.0
