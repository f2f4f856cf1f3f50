"""What the page is told: about the model, and about one text's way through its exits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from offramp.calibration.certificate import read_certificate
from offramp.errors import OfframpError
from offramp.evaluation.key_figures import PERCENTAGES, metric_title
from offramp.models import MultiExitModel
from offramp.policies import first_exit
from offramp.prediction.inputs import takes_pairs
from offramp.serving.page_points import points_shown

if TYPE_CHECKING:
    from offramp.serving.answers import Answer, ExitSaid, OperatingPoint
    from offramp.serving.service import Service


def about(service: Service) -> dict[str, Any]:
    """The model, and the places of the slider."""
    shown = points_shown(service.points)
    return {
        "info": service.info(),
        "exit_layers": list(service.model.exits.layers),
        "regression": service.model.objective.name == "regression",
        "pair": takes_pairs(service.model),
        "metric": _metric(service.model),
        "points": [_point(service, point) for point in shown.points],
        "default": shown.default,
    }


def traced(
    service: Service, points: Sequence[OperatingPoint], place: int, answer: Answer, said: Sequence[ExitSaid]
) -> dict[str, Any]:
    """What every exit says, by which of them each operating point leaves, and how the server's own answer went."""
    logits = torch.tensor([exit.logits for exit in said]).unsqueeze(1)  # (E, 1, C)
    layers, task = service.model.exits.layers, service.model.objective.name
    return {
        "exits": [{"layer": e.layer, "label": e.label, "confidence": e.confidence, "scores": e.scores} for e in said],
        "leaves": [int(first_exit(point.policy, logits, layers, task)) for point in points],
        "answer": {
            "point": place,
            "tokens": answer.tokens,
            "queued_ms": 1000 * answer.queued_s,
            "took_ms": 1000 * (answer.queued_s + answer.tokenise_s + answer.inference_s),
        },
    }


def _metric(model: MultiExitModel) -> dict[str, Any] | None:
    """What the scores of calibrated points are scores of."""
    if not model.name_or_path:
        return None
    try:
        metric = read_certificate(Path(model.name_or_path)).found.get("metric")
    except OfframpError:
        return None
    return metric and {"title": metric_title(metric), "percent": metric in PERCENTAGES}


def _point(service: Service, point: OperatingPoint) -> dict[str, Any]:
    return {
        "name": point.name,
        "policy": str(point.policy),
        "promise": point.promise,
        "limit": point.limit,
        "full_depth": point.policy == service.points.full_depth.policy,
        "expected": dict(point.expected),
    }
