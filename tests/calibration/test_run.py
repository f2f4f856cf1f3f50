"""`offramp.calibrate` in Python: what it returns, what it writes, and that this is read as it was written."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import offramp
from offramp.calibration import Promise, Uncertified
from offramp.calibration.certificate import Certificate, read_certificate
from offramp.calibration.certify import METHODS
from offramp.calibration.losses import BOUNDS, AccuracyGap, Cost, F1Gap, Inconsistency, Loss, loss_of
from offramp.errors import OfframpError
from offramp.models.weights_digest import weights_digest
from offramp.policies import Policy, policy_from_text
from offramp.tasks import Task, own_task
from tests.calibration.made_model import NAMES, labelled_file, settled_model
from tests.tiny import tiny_model

POLICIES = (
    "entropy(0.1)",
    "entropy(0.24276, normalised=True)",
    "entropy([0.1, -1.0, 0.25, -1.0], temperature=[1.5, 1.0, 0.8, 1.0])",
    "confidence(0.9) | patience(2)",
    "patience(3) & entropy(0.5)",
    "window(4)",
)
SHARES = st.floats(0.001, 0.999)
LOSSES = st.one_of(
    st.builds(AccuracyGap, st.sampled_from(BOUNDS)),
    st.builds(F1Gap, st.sampled_from(BOUNDS)),
    st.builds(Inconsistency, st.sampled_from(BOUNDS), st.floats(0, 10)),
    st.builds(Cost, st.sampled_from(BOUNDS), st.booleans()),
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    settled_model(folder / "model")
    labelled_file(folder / "new.csv", folder / "model", 800, seed=3)
    return folder


def rows(home: Path) -> Task:
    return own_task(test=home / "new.csv", text="review", label="verdict", labels=NAMES)


@settings(max_examples=60, deadline=None)
@given(
    loss=LOSSES,
    limit=SHARES,
    confidence=SHARES,
    method=st.sampled_from(METHODS),
    policy=st.sampled_from(POLICIES).map(policy_from_text),
    gates=st.none() | st.floats(-3, 3),
)
def test_a_certificate_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    loss: Loss,
    limit: float,
    confidence: float,
    method: str,
    policy: Policy,
    gates: float | None,
) -> None:
    folder = tmp_path_factory.mktemp("model")
    tested = ({"policy": str(policy), "cost": 0.5, "risk": limit / 2, "level": 0.01, "passes": True},)
    known = {"data": {"source": "a – b.csv", "rows": 7}, "found": {"score": None}, "reference": {"exits": {"1": 7}}}
    about = {**known, "tested": tested, "model": "1f", "versions": {"torch": "2"}, "gate_threshold": gates}
    made = Certificate(policy, Promise(loss, limit, confidence, method), **about)
    made.write(folder)
    assert read_certificate(folder) == made


def test_what_is_returned_is_what_is_written(home: Path) -> None:
    found = offramp.calibrate(home / "model", rows(home), split="test", max_loss=0.05)
    written = read_certificate(home / "model")
    assert written == found.certificate
    assert (written.policy, written.found["bound"]) == (found.policy, found.bound)
    assert found.risk <= found.bound <= 0.05
    assert found.files[0] == home / "model" / "policy.json"
    assert offramp.Engine(home / "model").policy == found.policy
    again = offramp.calibrate(offramp.load(home / "model"), rows(home), split="test", max_loss=0.05)
    assert again == found


def test_rows_that_lose_what_was_seen(home: Path) -> None:
    """The risk of the certificate is that of the engine's answers."""
    found = offramp.calibrate(home / "model", rows(home), split="test", max_loss=0.05, consistency=True, dry_run=True)
    texts = rows(home).split("test").texts
    full, early = (offramp.Engine(home / "model", policy)(texts) for policy in ("fixed(4)", found.policy))
    differ = [one.label != other.label for one, other in zip(full, early, strict=True)]
    if found.tested_on == len(texts):
        assert sum(differ) / len(differ) == pytest.approx(found.risk, abs=2 / len(texts))
    layers = sum(one.exit_layer or 0 for one in early) / len(early)
    assert layers == pytest.approx(found.point.mean_layers, abs=0.1)


def test_an_uncertified_policy_is_not_written(home: Path) -> None:
    (home / "model" / "policy.json").write_text('{"policy": "patience", "patience": 2}')
    before = (home / "model" / "policy.json").read_bytes()
    with pytest.raises(Uncertified, match=r"8 rows cannot support .* rows like these"):
        offramp.calibrate(home / "model", rows(home), split="test", max_loss=0.01, limit=8)
    with pytest.raises(OfframpError, match="cannot support"):
        offramp.calibrate(home / "model", rows(home), split="test", max_loss=0.001, policy="fixed(1)")
    assert (home / "model" / "policy.json").read_bytes() == before


def test_a_model_without_a_folder(home: Path) -> None:
    with pytest.raises(OfframpError, match="no folder"):
        offramp.calibrate(tiny_model(num_labels=2), rows(home), split="test", max_loss=0.05)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "holds no certificate"),
        ("[]", "holds no certificate"),
        ('{"policy": "entropy", "threshold": 0.1}', "without a certificate"),
        ('{"policy": {}, "certificate": {"format": 99}}', "another version"),
        ('{"policy": {}, "certificate": {"format": 1}}', "holds no certificate"),
    ],
)
def test_certificates_that_are_none(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "policy.json").write_text(text)
    with pytest.raises(OfframpError, match=why):
        read_certificate(tmp_path)


@dataclasses.dataclass(frozen=True)
class Known:
    kind: str
    labelled: bool
    metrics: tuple[str, ...]


@pytest.mark.parametrize(
    ("known", "metric", "loss"),
    [
        (Known("classification", True, ("accuracy",)), None, AccuracyGap()),
        (Known("classification", True, ("accuracy", "f1")), "f1", F1Gap()),
        (Known("span", True, ("f1", "exact")), None, AccuracyGap()),
        (Known("span", True, ("f1", "exact")), "f1", "--metric exact"),
        (Known("classification", True, ("matthews",)), None, "matthews cannot be promised"),
        (Known("regression", True, ("pearson",)), "accuracy", "--tolerance NUMBER"),
        (Known("classification", False, ("accuracy",)), None, "no labels"),
    ],
)
def test_which_loss_is_limited(known: Known, metric: str | None, loss: Loss | str) -> None:
    if isinstance(loss, str):
        with pytest.raises(OfframpError, match=loss):
            loss_of(known, metric, False, None, "exact")
    else:
        assert loss_of(known, metric, False, None, "exact") == loss


def test_digest_tells_weights_apart() -> None:
    model = tiny_model(num_labels=2)
    before = weights_digest(model)
    assert weights_digest(model) == before
    for parameter in list(model.parameters())[::7]:
        kept = parameter.detach().clone()
        with torch.no_grad():
            parameter.mul_(1.001).add_(1e-4)
        assert weights_digest(model) != before
        with torch.no_grad():
            parameter.copy_(kept)
    assert weights_digest(model) == before


def test_certificates_are_plain_json(home: Path) -> None:
    found = offramp.calibrate(home / "model", rows(home), split="test", max_cost=0.7, dry_run=True)
    assert found.certificate is not None
    text = json.dumps(found.certificate.to_json(), allow_nan=False)
    assert json.loads(text)["certificate"]["promise"]["text"] == str(found.promise)
