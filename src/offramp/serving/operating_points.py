"""Which operating points a server offers, and which a request may ask for."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offramp.engine.coverage import RunAs, not_covered
from offramp.engine.policy_choice import GATE_THRESHOLD, POLICY, folder_policy, policy_for
from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.models.weights_digest import weights_digest
from offramp.policies import Fixed, Policy, policy_from_text
from offramp.serving.answers import OperatingPoint

if TYPE_CHECKING:
    from offramp.calibration.calibrate import Promise

logger = logging.getLogger(__name__)

MAX_LOSS, OWN_POLICY, FULL_DEPTH = "max_loss", "policy", "full_depth"
ALL = (MAX_LOSS, OWN_POLICY, FULL_DEPTH)
"""What a request may ask for."""
CALIBRATED = "calibrated"
LONGEST_NAME = 120
"""Letters. The text of a policy with a number for each layer may be long."""
EXPECTED = ("risk", "bound", "mean_layers", "cost", "speed_up", "score", "full_score", "agreement")


class OperatingPoints:
    """What a server runs under where nothing is asked, and what may be asked.

    Args:
        model: with its folder, where the calibrated policy lies.
        default: where a request asks for nothing; default: the folder's own policy, or full depth.
        allow: what requests may ask for, of `max_loss`, `policy` and `full_depth`.
        runs: how the model is run: a promise that was made of another precision or length is none here.
    """

    def __init__(
        self,
        model: MultiExitModel,
        default: Policy | str | None = None,
        allow: Collection[str] = ALL,
        runs: RunAs | None = None,
    ) -> None:
        if unknown := sorted(set(allow) - set(ALL)):
            raise OfframpError(f"a request cannot be allowed {unknown[0]!r}: use {', '.join(ALL)}")
        self.model = model
        self.allow = frozenset(allow)
        policy = policy_for(model, default)
        own = folder_policy(Path(model.name_or_path)) if default is None and model.name_or_path else None
        self.full_depth = _full_depth(model.exits.layers[-1], other_gates=own is not None and own[1] is not None)
        certified = Certified.of(model, runs or RunAs(), own_gates=default is None)
        if default is None and certified is not None:
            self.default = certified.point
        elif policy == self.full_depth.policy:
            self.default = self.full_depth
        else:
            self.default = OperatingPoint(policy, name_of(policy), audited=True)
            if default is None:
                logger.warning(
                    f"the model's own policy {policy} is not certified: run offramp calibrate to certify one"
                )
        self.menu: Sequence[OperatingPoint] = () if certified is None else certified.menu
        self.tolerance = None if certified is None else certified.tolerance
        """In regression, how far a number may be from full depth's and count as the same."""

    @property
    def offered(self) -> list[OperatingPoint]:
        """The points that promise something, and the default, each once."""
        return list({point.name: point for point in (self.default, *self.menu, self.full_depth)}.values())

    def choose(
        self, *, max_loss: float | None = None, policy: str | None = None, full_depth: bool = False
    ) -> OperatingPoint:
        """The point a request asks for, by one of the three; the default where it asks for none."""
        asked = {MAX_LOSS: max_loss is not None, OWN_POLICY: policy is not None, FULL_DEPTH: full_depth}
        wanted = [name for name, given in asked.items() if given]
        if len(wanted) > 1:
            raise OfframpError(f"{' and '.join(wanted)} at once: ask for one of them")
        if wanted and wanted[0] not in self.allow:
            allowed = [name for name in ALL if name in self.allow]
            instead = f"use {', '.join(allowed)}, or nothing" if allowed else "every request runs under its own policy"
            raise OfframpError(f"this server does not take {wanted[0]}: {instead}")
        if full_depth:
            return self.full_depth
        if policy is not None:
            return self._under(policy)
        return self.default if max_loss is None else self._within(max_loss)

    def _under(self, text: str) -> OperatingPoint:
        policy = policy_for(self.model, policy_from_text(text))
        for known in self.offered:
            if known.policy == policy:
                return known
        return OperatingPoint(policy, name_of(policy))

    def _within(self, max_loss: float) -> OperatingPoint:
        """The cheapest point that is certified to lose no more than that."""
        if not self.menu:
            raise OfframpError(
                "max_loss: nothing is certified for this model as it is served; run offramp calibrate on it, or ask "
                "for a policy"
            )
        held = [point for point in self.menu if point.limit is not None and point.limit <= max_loss]
        if not held:
            limits = ", ".join(f"{point.limit:g}" for point in self.menu)
            raise OfframpError(f"max_loss {max_loss:g} is not certified: {limits} are; or ask for full_depth")
        return min(held, key=lambda point: (point.expected.get("cost", 1.0), point.limit))


class Certified:
    """What a model folder's `policy.json` promises of the weights that are there, as they are run."""

    def __init__(self, point: OperatingPoint, menu: Sequence[OperatingPoint], tolerance: float | None) -> None:
        self.point = point
        self.menu = menu
        self.tolerance = tolerance

    @classmethod
    def of(cls, model: MultiExitModel, runs: RunAs, own_gates: bool) -> Certified | None:
        """None where nothing is promised; `own_gates` says whether gates have the threshold of `policy.json`."""
        path = Path(model.name_or_path or ".") / POLICY
        if not model.name_or_path or not path.is_file():
            return None
        data = json.loads(path.read_text(encoding="utf-8"))
        if "certificate" not in data or (data.get(GATE_THRESHOLD) is not None and not own_gates):
            return None
        from offramp.calibration.certificate import read_certificate  # brings what only calibration uses

        certificate = read_certificate(path.parent)
        if certificate.model != weights_digest(model):
            logger.warning(
                f"{path} was calibrated for other weights and promises nothing of these: run offramp calibrate"
            )
            return None
        if other := not_covered(certificate.data, runs):
            logger.warning(f"{path}: {other}: run offramp calibrate with {other.now.options}")
            return None
        promise = certificate.promise
        point = _point(CALIBRATED, promise, certificate.policy, certificate.found)
        menu = [
            _point(f"max_loss={each.limit:g}", replace(promise, limit=each.limit), each.policy, asdict(each))
            for each in certificate.menu
        ]
        if certificate.gate_threshold is not None:  # full depth with the model's own gates is not there to compare with
            point, *menu = (replace(one, least_agreement=None) for one in (point, *menu))
        for one in (point, *menu):
            try:
                one.policy.check(model.objective.name, model.exits.layers)
            except OfframpError as error:
                raise OfframpError(f"{path}: {one.name}: {error}") from error
        if promise.loss.name == "cost":  # a budget is no loss that a request could name
            return cls(replace(point, limit=None), (), None)
        return cls(point, menu or [point], getattr(promise.loss, "tolerance", None))


def _point(name: str, promise: Promise, policy: Policy, found: Mapping[str, Any]) -> OperatingPoint:
    expected = {key: float(found[key]) for key in EXPECTED if isinstance(found.get(key), int | float)}
    least = _least_agreement(promise.loss.name, promise.limit, expected.get("agreement"))
    return OperatingPoint(policy, name, str(promise), promise.limit, expected, least, audited=True)


def _least_agreement(loss: str, limit: float, calibrated: float | None) -> float | None:
    """Below which agreement with full depth a promise is in doubt.

    Of consistency that is what was promised. Accuracy can be lost only by answers that differ: where more of them
    differ than at calibration, by more than the limit, that may have used up all that was promised.
    """
    if loss == "cost":
        return None
    if loss == "inconsistency":
        return 1 - limit
    return None if calibrated is None else max(0.0, calibrated - limit)


def _full_depth(layers: int, other_gates: bool) -> OperatingPoint:
    """With other gates than the model's own it is not what promises compare with, and is promised nothing itself."""
    expected = {"mean_layers": float(layers), "cost": 1.0, "speed_up": 1.0}
    if other_gates:
        return OperatingPoint(Fixed(layers), "full depth", None, None, expected)
    expected |= {"risk": 0.0, "agreement": 1.0}
    return OperatingPoint(Fixed(layers), "full depth", "the model's own answer", 0.0, expected)


def name_of(policy: Policy) -> str:
    """The policy as text, cut where it is long."""
    text = str(policy)
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"
