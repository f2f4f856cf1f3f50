"""Results as an evaluation would find them, from simulated confidences instead of a model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offramp.evaluation.results import ExitScore, GateReport, OperatingPoint, Results, Sweep

POLICIES = {"entropy": 0.10, "confidence": 0.12, "patience": 0.22, "window": 0.15, "ruled_out": 0.30}
"""How noisy each policy's idea of being right is."""


def sample_results(
    name: str = "romebert",
    *,
    depth: int = 12,
    rows: int = 872,
    points: int = 40,
    policies: tuple[str, ...] = tuple(POLICIES),
    skill: float = 1.0,
    labelled: bool = True,
    asked: bool = False,
    seed: int = 0,
    task: str = "sst-2",
    split: str = "dev",
    gates: GateReport | None = None,
) -> Results:
    """Rows get easier with each layer, at a pace of their own; `skill` is how early the exits are good."""
    random = np.random.default_rng(seed)
    ease = random.normal(1.4, 1.0, rows) + skill * np.sqrt(np.arange(1, depth + 1) / depth)[:, None]  # (depth, rows)
    right = random.random((depth, rows)) < 1 / (1 + np.exp(-2.2 * (ease - 1.2)))
    agrees = right == right[-1]

    def scores(chosen: NDArray[np.bool_]) -> dict[str, float]:
        return {"accuracy": float(chosen.mean()), "f1": float(chosen.mean() * 0.985)} if labelled else {}

    def point(policy: str, layers: NDArray[np.int64]) -> OperatingPoint:
        at = (layers - 1, np.arange(rows))
        mean = float(layers.mean())
        counts = {layer: int((layers == layer).sum()) for layer in range(1, depth + 1)}
        agreement = float(agrees[at].mean())
        return OperatingPoint(
            policy=policy,
            scores=scores(right[at]),
            mean_layers=mean,
            cost=mean / depth,
            speed_up=depth / mean,
            mflops=94.3 * mean,
            agreement=agreement,
            exits=counts,
        )

    def sweep(policy: str) -> Sweep:
        sure = ease + random.normal(0, 10 * POLICIES[policy], ease.shape) * 0.6
        thresholds = np.quantile(sure, np.linspace(0, 1, points))
        leaves = [np.where((sure > t).any(0), (sure > t).argmax(0) + 1, depth) for t in thresholds]
        found = [point(f"{policy}({t:.4g})", layers) for t, layers in zip(thresholds, leaves, strict=True)]
        found.sort(key=lambda one: one.cost)
        area = float(np.mean([one.scores["accuracy"] for one in found])) if labelled else None
        return Sweep(policy, found, area, 0.4 if labelled else None)

    sweeps = [sweep(policy) for policy in policies]
    return Results(
        name=name,
        model=f"runs/{task}-{name}",
        task=task,
        split=split,
        rows=rows,
        metrics=["accuracy", "f1"],
        depth=depth,
        exits=[ExitScore(i + 1, scores(right[i]), 94.3 * (i + 1), float(agrees[i].mean())) for i in range(depth)],
        sweeps=sweeps,
        pareto=[],
        point=point("entropy(0.1) | window(8)", np.clip((ease < 2).sum(0) + 1, 1, depth)) if asked else None,
        gates=gates,
        settings={"recipe": name.split()[0], "device": "cpu", "batch_size": 32, "versions": {"torch": "2.13.0"}},
    )


def sample_gates(
    depth: int = 12, heads: int = 12, blocks: int = 48, *, deleted: bool = False, seed: int = 0
) -> GateReport:
    """Half of the gates are constant, as in trained models; folding has `deleted` those that are always off."""
    random = np.random.default_rng(seed)

    def rates(units: int) -> list[list[float | None]]:
        drawn = np.clip(random.normal(0.6, 0.7, (depth, units)), 0, 1).round(4)
        rows = [[rate for rate in row if rate or not deleted] for row in drawn.tolist()]
        return [row + [None] * (units - len(row)) for row in rows]

    def means(rows: list[list[float | None]]) -> list[float]:
        return [sum(rate or 0 for rate in row) / len(row) for row in rows]

    of_heads, of_neurons = rates(heads), rates(blocks)
    return GateReport(5.594, 3.412, 3.412 / 5.594, means(of_heads), means(of_neurons), of_heads, of_neurons)
