"""In plain words: do exits pay here, and what is fastest."""

from __future__ import annotations

from offramp.bench.results import OURS, ExitGain, Workload

LEAVES = 1.01
"""By layers: less is nobody."""
ROUNDS, NOISE = 3, 1.15
"""Fewer rounds say nothing, and more than the layers saved is a machine that slowed down meanwhile."""


def verdict(workload: Workload) -> str:
    """One sentence about one batch size."""
    title = workload.title.capitalize()
    return f"{title}: {_exits(workload)}; fastest is {_fastest(workload)}."


def _exits(workload: Workload) -> str:
    if workload.ideal < LEAVES:
        return "no text leaves early, so there is nothing to gain"
    best = max(gain.speed_up for gain in workload.gains)
    if workload.rounds < ROUNDS or best > NOISE * workload.ideal:
        found = f"{_speeds(workload.gains)} as fast as full depth, {workload.ideal:.2f}× by layers"
        return f"too few rounds to tell ({found}): give more --seconds"
    paying = [gain for gain in workload.gains if gain.pays]
    idle = [gain for gain in workload.gains if not gain.pays]
    by_layers = f", {workload.ideal:.2f}× by layers"
    if not idle:
        return f"exits pay ({_speeds(paying)} as fast as full depth{by_layers})"
    if not paying:
        return f"exits do not pay ({_speeds(idle)} as fast as full depth{by_layers})"
    return f"exits pay in {_speeds(paying)} but do not pay in {_speeds(idle)} (as fast as full depth{by_layers})"


def _speeds(gains: list[ExitGain]) -> str:
    return ", ".join(f"{gain.precision} {gain.speed_up:.2f}×" for gain in gains)


def _times(ratio: float) -> str:
    return f"{ratio:.2f}×" if ratio < 10 else f"{ratio:.0f}×"


def _fastest(workload: Workload) -> str:
    rivals = {name: ratio for name, ratio in workload.faster_than.items() if not name.startswith(OURS)}
    ours = {name: ratio for name, ratio in workload.faster_than.items() if name.startswith(OURS)}
    if not workload.fastest.startswith(OURS):
        best = min(ours, key=ours.__getitem__)
        return f"{workload.fastest}, not offramp: {_times(ours[best])} as fast as {best}"
    if not rivals:
        return workload.fastest
    best = min(rivals, key=rivals.__getitem__)
    return f"{workload.fastest}: {_times(rivals[best])} as fast as the best rival, {best}"
