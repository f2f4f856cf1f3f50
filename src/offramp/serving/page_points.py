"""The operating points on the page's slider, cheapest first, as the server allows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from offramp.errors import OfframpError

if TYPE_CHECKING:
    from offramp.serving.answers import OperatingPoint
    from offramp.serving.operating_points import OperatingPoints


@dataclass(frozen=True)
class Shown:
    """The places of the slider."""

    points: Sequence[OperatingPoint]
    default: int
    """The one the server runs at where nothing is asked."""


def points_shown(points: OperatingPoints) -> Shown:
    """What a client may ask for, each policy once, the cheapest first and full depth last."""
    found: list[OperatingPoint] = [points.default]
    for point in _others(points):
        if all(point.policy != other.policy for other in found):
            found.append(point)
    full = points.full_depth.policy
    found.sort(key=lambda point: (point.policy == full, point.expected.get("mean_layers", float("inf"))))
    return Shown(found, next(place for place, point in enumerate(found) if point is points.default))


def _others(points: OperatingPoints) -> Iterator[OperatingPoint]:
    for point in points.menu:
        if point.limit is not None and _allowed(points, max_loss=point.limit):
            yield point
    if _allowed(points, full_depth=True):
        yield points.full_depth


def _allowed(points: OperatingPoints, max_loss: float | None = None, full_depth: bool = False) -> bool:
    try:
        points.choose(max_loss=max_loss, full_depth=full_depth)
    except OfframpError:
        return False
    return True
