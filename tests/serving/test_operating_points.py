"""What a server offers, and what a request may ask for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import offramp
from offramp import OfframpError
from offramp.engine.coverage import RunAs
from offramp.models.weights_digest import weights_digest
from offramp.policies import Entropy, Fixed, Patience, Policy, Scripted
from offramp.serving.operating_points import OperatingPoints
from offramp.serving.service import Service
from tests.prediction.models import model_folder, write
from tests.tiny import tiny_gated_model

FOUND = {"risk": 0.004, "bound": 0.009, "mean_layers": 2.5, "cost": 0.5, "speed_up": 2.0, "score": 0.9}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "model")


def entry(limit: float, policy: Policy, cost: float) -> dict[str, Any]:
    return {"limit": limit, "policy": policy.to_json(), **FOUND, "cost": cost}


MENU = [entry(0.01, Entropy(0.2), 0.5), entry(0.02, Patience(2), 0.55), entry(0.05, Entropy(0.6), 0.3)]


def calibrate(
    folder: Path, loss: str = "accuracy", menu: Any = MENU, model: str | None = None, data: Any = None, **top: Any
) -> Any:
    """Write a certificate as calibration does."""
    digest = weights_digest(offramp.load(folder)) if model is None else model
    settings: dict[str, Any] = {"bound": "exact"} | ({"tolerance": 0.5} if loss == "inconsistency" else {})
    promise = {"loss": loss, "settings": settings, "text": "", "limit": 0.01, "confidence": 0.95}
    certificate = {
        "format": 1,
        "promise": promise | {"method": "fixed_sequence"},
        "data": data or {},
        "found": FOUND | {"agreement": 0.98},
        "reference": {},
        "tested": [],
        "model": digest,
        "versions": {},
    }
    if menu is not None:
        certificate["menu"] = menu
    whole = {"policy": Entropy(0.2).to_json(), **top, "certificate": certificate}
    (folder / "policy.json").write_text(json.dumps(whole))
    return offramp.load(folder)


def test_a_calibrated_model_has_a_menu(folder: Path) -> None:
    points = OperatingPoints(calibrate(folder))
    assert points.default.name == "calibrated"
    assert points.default.promise == "at most 1 % of accuracy is lost, with 95 % confidence"
    assert points.default.expected["speed_up"] == 2.0
    assert [point.limit for point in points.menu] == [0.01, 0.02, 0.05]
    assert points.menu[2].promise == "at most 5 % of accuracy is lost, with 95 % confidence"
    assert [point.name for point in points.offered][-1] == "full depth"


@pytest.mark.parametrize(
    ("max_loss", "policy"),
    [(0.01, Entropy(0.2)), (0.019, Entropy(0.2)), (0.02, Entropy(0.2)), (0.05, Entropy(0.6)), (0.5, Entropy(0.6))],
)
def test_max_loss_is_the_cheapest_certified_point_within_it(folder: Path, max_loss: float, policy: Policy) -> None:
    """At 2 % there is one that costs more than that of 1 %: it is never the one to take."""
    assert OperatingPoints(calibrate(folder)).choose(max_loss=max_loss).policy == policy


def test_what_is_asked_for(folder: Path) -> None:
    points = OperatingPoints(calibrate(folder))
    assert points.choose() is points.default
    assert points.choose(full_depth=True) is points.full_depth
    assert points.choose(policy="patience(3)").policy == Patience(3)
    assert points.choose(policy="fixed(5)") is points.full_depth
    assert points.choose(policy="entropy(0.6)") is points.menu[2]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"max_loss": 0.001}, "max_loss 0.001 is not certified: 0.01, 0.02, 0.05 are"),
        ({"max_loss": float("nan")}, "not certified"),
        ({"max_loss": 0.01, "policy": "fixed(5)"}, "max_loss and policy at once"),
        ({"full_depth": True, "policy": "fixed(5)"}, "policy and full_depth at once"),
        ({"policy": "magic(1)"}, "unknown policy 'magic'"),
        ({"policy": "fixed(9)"}, "no exit there"),
        ({"policy": "entropy("}, "cannot read the policy"),
    ],
)
def test_what_cannot_be_had(folder: Path, asked: dict[str, Any], why: str) -> None:
    with pytest.raises(OfframpError, match=why.replace("(", r"\(")):
        OperatingPoints(calibrate(folder)).choose(**asked)


@pytest.mark.parametrize(
    ("asked", "name"),
    [({"max_loss": 0.05}, "max_loss"), ({"policy": "fixed(5)"}, "policy"), ({"full_depth": True}, "full_depth")],
)
def test_what_is_not_allowed(folder: Path, asked: dict[str, Any], name: str) -> None:
    model = calibrate(folder)
    others = [other for other in ("max_loss", "policy", "full_depth") if other != name]
    with pytest.raises(OfframpError, match=f"does not take {name}: use {', '.join(others)}, or nothing"):
        OperatingPoints(model, allow=others).choose(**asked)
    with pytest.raises(OfframpError, match="under its own policy"):
        OperatingPoints(model, allow=()).choose(**asked)
    assert OperatingPoints(model, allow=()).choose().name == "calibrated"


def test_an_unknown_permission(folder: Path) -> None:
    with pytest.raises(OfframpError, match="'speed'"):
        OperatingPoints(offramp.load(folder), allow=["speed"])


def test_without_a_menu_the_calibrated_point_is_the_only_one(folder: Path) -> None:
    points = OperatingPoints(calibrate(folder, menu=None))
    assert points.choose(max_loss=0.02) is points.default
    with pytest.raises(OfframpError, match="is not certified"):
        points.choose(max_loss=0.001)


def test_other_weights_promise_nothing(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    points = OperatingPoints(calibrate(folder, model="other"))
    assert "other weights" in caplog.text
    assert (points.default.policy, points.default.promise) == (Entropy(0.2), None)
    with pytest.raises(OfframpError, match="nothing is certified"):
        points.choose(max_loss=0.1)


@pytest.mark.parametrize(
    ("runs", "promised"),
    [(RunAs("fp32", 32), True), (RunAs(), True), (RunAs("int8", 32), False), (RunAs("fp32", 16), False)],
)
def test_another_precision_or_length_promises_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture, runs: RunAs, promised: bool
) -> None:
    model = calibrate(folder, data={"precision": "float32", "max_length": 32})
    points = OperatingPoints(model, runs=runs)
    assert points.default.policy == Entropy(0.2)
    assert (points.default.promise is not None, len(points.menu)) == (promised, 3 if promised else 0)
    assert ("its promise was made" in caplog.text) == (not promised)
    if not promised:
        with pytest.raises(OfframpError, match="nothing is certified for this model as it is served"):
            points.choose(max_loss=0.1)


def test_a_server_promises_what_it_runs(folder: Path) -> None:
    data = {"precision": "fp32", "max_length": 32}
    for how, promised in ({"max_length": 32}, True), ({"max_length": 16}, False), ({"precision": "bf16"}, False):
        service = Service(calibrate(folder, data=data), device="cpu", **how)  # type: ignore[arg-type]
        said = {point["name"]: point["promise"] for point in service.info()["operating_points"]}
        assert ("calibrated" in said) == promised, how


def test_a_policy_of_ones_own_promises_nothing_but_the_menu_stays(folder: Path) -> None:
    points = OperatingPoints(calibrate(folder), "patience(3)")
    assert (points.default.name, points.default.promise) == ("patience(3)", None)
    assert points.choose(max_loss=0.01).policy == Entropy(0.2)


def test_without_calibration_full_depth_is_the_default(folder: Path) -> None:
    points = OperatingPoints(offramp.load(folder))
    assert points.default is points.full_depth
    assert points.default.policy == Fixed(5)
    assert points.menu == ()


def test_agreement_that_keeps_a_promise(folder: Path) -> None:
    accuracy = OperatingPoints(calibrate(folder))
    assert accuracy.default.least_agreement == pytest.approx(0.98 - 0.01)
    assert accuracy.menu[2].least_agreement is None, "what it was when calibrated is not known"
    same = OperatingPoints(calibrate(folder, loss="inconsistency"))
    assert same.default.least_agreement == pytest.approx(0.99)
    assert same.menu[2].least_agreement == pytest.approx(0.95)
    assert same.tolerance == 0.5
    budget = OperatingPoints(calibrate(folder, loss="cost", menu=None))
    assert (budget.default.least_agreement, budget.default.limit, budget.menu) == (None, None, ())


@pytest.mark.parametrize("raised", [True, False])
def test_full_depth_under_other_gates_is_not_what_was_promised_against(tmp_path: Path, raised: bool) -> None:
    torch.manual_seed(3)
    folder = write(tiny_gated_model(num_labels=2), tmp_path / "gated", None)
    points = OperatingPoints(calibrate(folder, menu=MENU, **({"gate_threshold": 0.5} if raised else {})))
    full = points.choose(full_depth=True)
    assert points.default.promise == "at most 1 % of accuracy is lost, with 95 % confidence"
    assert (points.default.least_agreement is None) == raised
    assert (full.promise, full.limit) == ((None, None) if raised else ("the model's own answer", 0.0))
    assert ("agreement" in full.expected) == (not raised)
    own = OperatingPoints(calibrate(folder, **({"gate_threshold": 0.5} if raised else {})), "patience(3)").full_depth
    assert own.promise is not None, "the gates are the model's own where another policy is asked for"


@pytest.mark.parametrize("menu", [[{"limit": 0.1}], [3], "x"])
def test_a_menu_that_cannot_be_read(folder: Path, menu: Any) -> None:
    with pytest.raises(OfframpError, match=r"policy\.json.*calibrate"):
        OperatingPoints(calibrate(folder, menu=menu))


def test_a_long_policy_has_a_short_name(folder: Path) -> None:
    points = OperatingPoints(offramp.load(folder), Scripted(tuple([3] * 1000)))
    assert len(points.default.name) == 120
    assert points.default.name.endswith("…")
