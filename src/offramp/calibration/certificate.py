"""The certificate: what was promised, on which rows, and how the policy was found. It lies in `policy.json`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from offramp.calibration.calibrate import Calibration, Promise
from offramp.calibration.losses import LOSSES
from offramp.calibration.menu import MenuPoint
from offramp.engine.policy_choice import GATE_THRESHOLD, POLICY
from offramp.errors import OfframpError, one_line
from offramp.evaluation.trace_base import TraceBase
from offramp.policies import Policy, policy_from_json
from offramp.whole_file import whole_file

FORMAT = 1
QUANTILES = np.linspace(0, 1, 21)


@dataclass(frozen=True)
class Certificate:
    """What `policy.json` holds."""

    policy: Policy
    promise: Promise
    data: Mapping[str, Any]
    """source, split and digest of the rows, how many there were (rows) and were tested on (tested_on)."""
    found: Mapping[str, Any]
    """What the policy gave: path, risk, bound, metric, score, full_score, mean_layers, cost, speed_up, agreement."""
    reference: Mapping[str, Any]
    """What new rows are compared with: exits (layer: inputs), and quantiles of how sure the exit was that answered
    (confidence) and full depth is (full_confidence); none of them for numbers and spans."""
    tested: tuple[Mapping[str, Any], ...]
    """policy, cost, risk, level and passes of every point that was tested, in order."""
    model: str = ""
    """A digest of the weights: a certificate of other weights is worth nothing."""
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    gate_threshold: float | None = None
    """Of the model's gates; none where they are left as they are."""
    menu: tuple[MenuPoint, ...] = ()
    """What other limits of the same loss give, and the promised one, the lowest first; none in older files."""

    def to_json(self) -> dict[str, Any]:
        loss = self.promise.loss
        promise = {"loss": loss.name, "settings": dataclasses.asdict(loss), "text": str(self.promise)}
        promise |= {name: getattr(self.promise, name) for name in ("limit", "confidence", "method")}
        names = ("data", "found", "reference", "tested", "model", "versions")
        about = {name: getattr(self, name) for name in names}
        about["menu"] = [point.to_json() for point in self.menu]
        gates = {} if self.gate_threshold is None else {GATE_THRESHOLD: self.gate_threshold}
        return {
            "policy": self.policy.to_json(),
            **gates,
            "certificate": {"format": FORMAT, "promise": promise, **about},
        }

    def write(self, folder: Path) -> Path:
        path = folder / POLICY
        with whole_file(path) as file:
            file.write(json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n")
        return path


def certificate_of(calibration: Calibration, trace: TraceBase, model: str = "") -> Certificate:
    """The certificate of a calibration on a trace."""
    point, full = calibration.point, calibration.full
    metric = trace.metrics[0] if trace.labelled else None
    return Certificate(
        policy=calibration.policy,
        promise=calibration.promise,
        data={
            "source": trace.source,
            "split": trace.split,
            "digest": trace.data,
            "rows": calibration.rows,
            "tested_on": calibration.tested_on,
            "precision": trace.precision,
        },
        found={
            "path": calibration.path,
            "risk": calibration.risk,
            "bound": calibration.bound,
            "metric": metric,
            "score": None if metric is None else point.scores[metric],
            "full_score": None if metric is None else full.scores[metric],
            "mean_layers": point.mean_layers,
            "cost": point.cost,
            "speed_up": point.speed_up,
            "mflops": point.mflops,
            "full_mflops": full.mflops,
            "agreement": point.agreement,
        },
        reference={"exits": {str(layer): count for layer, count in calibration.exits.items()}}
        | confidence_quantiles(trace, calibration.policy),
        tested=tuple(
            {"policy": str(one.policy)} | {name: getattr(one, name) for name in ("cost", "risk", "level", "passes")}
            for one in calibration.tested
        ),
        model=model,
        versions=trace.versions,
        gate_threshold=calibration.gate_threshold,
        menu=calibration.menu,
    )


def confidence_quantiles(trace: TraceBase, policy: Policy) -> dict[str, list[float]]:
    """Of the largest probability, at the exit that answered and at full depth."""
    if trace.kind != "classification":
        return {}
    sure = confidences(trace, policy)
    return {name: np.quantile(values, QUANTILES).round(5).tolist() for name, values in sure.items()}


def confidences(trace: TraceBase, policy: Policy) -> dict[str, NDArray[np.float64]]:
    """For each row of labels the largest probability, at the exit that answered and at full depth."""
    rows = np.arange(len(trace))
    answered = trace.logits[trace.exits(policy), rows]
    return {
        name: special.softmax(logits.astype(np.float64), axis=-1).max(-1)
        for name, logits in (("confidence", answered), ("full_confidence", trace.logits[-1]))
    }


def read_certificate(folder: Path) -> Certificate:
    """What a model folder's `policy.json` says of how its policy was found."""
    path = folder / POLICY
    if not path.is_file():
        raise OfframpError(
            f"{folder} has no {POLICY}: calibrate it first, as in offramp calibrate {folder} --max-loss 0.01"
        )
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if "certificate" not in data:
            raise OfframpError(f"{path} holds a policy without a certificate: calibrate the model")
        about = data["certificate"]
        if about["format"] != FORMAT:
            raise OfframpError(f"{path} was written by another version of offramp: calibrate the model again")
        promise = about["promise"]
        loss = LOSSES[promise["loss"]](**promise["settings"])
        return Certificate(
            policy=policy_from_json(data["policy"]),
            promise=Promise(loss, promise["limit"], promise["confidence"], promise["method"]),
            data=about["data"],
            found=about["found"],
            reference=about["reference"],
            tested=tuple(about["tested"]),
            model=about["model"],
            versions=about["versions"],
            gate_threshold=data.get(GATE_THRESHOLD),
            menu=tuple(MenuPoint.from_json(point) for point in about.get("menu", ())),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, OfframpError):
            raise
        raise OfframpError(f"{path} holds no certificate ({one_line(error)}): calibrate the model again") from error
