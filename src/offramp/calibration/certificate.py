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
from offramp.typed_json import read_object, typed
from offramp.whole_file import whole_file

FORMAT = 1
QUANTILES = np.linspace(0, 1, 21)
RELIED_ON: dict[str, dict[str, Any]] = {
    "data": {"rows": int, "digest": str},
    "found": {"risk": float, "bound": float, "cost": float, "agreement": float},
    "reference": {"exits": dict[int, int]},
}
"""Of what a certificate holds as plain data, what checking it needs, and of which kind."""


@dataclass(frozen=True)
class Certificate:
    """What `policy.json` holds."""

    policy: Policy
    promise: Promise
    data: Mapping[str, Any]
    """source, split and digest of the rows, how many there were (rows) and were tested on (tested_on); in which
    precision the model ran, and to how many tokens texts were cut (max_length): both are not in all older files."""
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
            "max_length": trace.max_length,
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
        data = read_object(path)
        if "certificate" not in data:
            raise OfframpError(f"{path} holds a policy without a certificate: calibrate the model")
        about = typed(dict[str, Any], data["certificate"], "certificate")
        if about["format"] != FORMAT:
            raise OfframpError(f"{path} was written by another version of offramp: calibrate the model again")
        return Certificate(
            policy=policy_from_json(data["policy"]),
            promise=_promise(typed(dict[str, Any], about["promise"], "promise")),
            **{part: _part(part, about[part]) for part in RELIED_ON},
            tested=typed(tuple[Mapping[str, Any], ...], about["tested"], "tested"),
            model=typed(str, about["model"], "model"),
            versions=typed(dict[str, str], about["versions"], "versions"),
            gate_threshold=typed(float | None, data.get(GATE_THRESHOLD), GATE_THRESHOLD),
            menu=tuple(MenuPoint.from_json(point) for point in typed(list[Any], about.get("menu", []), "menu")),
        )
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, OfframpError) and str(path) in str(error):
            raise
        raise OfframpError(f"{path} holds no certificate ({one_line(error)}): calibrate the model again") from error


def _promise(written: dict[str, Any]) -> Promise:
    kind = LOSSES[typed(str, written["loss"], "promise.loss")]
    loss = typed(kind, written["settings"], "promise.settings")
    limit, confidence = (typed(float, written[name], f"promise.{name}") for name in ("limit", "confidence"))
    if not 0 < confidence < 1:
        raise ValueError(f"promise.confidence is {confidence}: expected more than 0 and less than 1")
    return Promise(loss, limit, confidence, typed(str, written["method"], "promise.method"))


def _part(part: str, written: Any) -> dict[str, Any]:
    """One of the parts that are plain data; what a check relies on must be of its kind."""
    given: dict[str, Any] = typed(dict[str, Any], written, part)
    for name in RELIED_ON[part].keys() & given.keys():
        typed(RELIED_ON[part][name], given[name], f"{part}.{name}")
    if given.get("rows", 1) < 1:
        raise ValueError("data.rows must be 1 or more")
    counts = given.get("exits", {"": 1}).values()
    if min(counts, default=-1) < 0 or not any(counts):
        raise ValueError("reference.exits must count inputs")
    for name in given.keys() & {"confidence", "full_confidence"}:
        if len(typed(list[float], given[name], f"{part}.{name}")) != len(QUANTILES):
            raise ValueError(f"{part}.{name} has {len(given[name])} quantiles: expected {len(QUANTILES)}")
    return given


def refuse_incomplete(certificate: Certificate, folder: Path) -> None:
    """Of a certificate that is to be checked: is all there that the check needs?"""
    for part, kinds in RELIED_ON.items():
        for name in kinds.keys() - getattr(certificate, part).keys():
            raise OfframpError(f"{folder / POLICY} does not say {part}.{name}: calibrate the model again")
