"""Policies: as text, in `policy.json`, and with the certificate that stands beside them."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import torch

from offramp.calibration import Promise, calibrate_trace
from offramp.calibration.certificate import certificate_of, read_certificate, refuse_incomplete
from offramp.calibration.drift import check_promise
from offramp.calibration.losses import Inconsistency
from offramp.cli.own_policy import say_own_policy
from offramp.engine.coverage import RunAs
from offramp.engine.policy_choice import folder_policy
from offramp.errors import OfframpError
from offramp.models.weights_digest import weights_digest
from offramp.policies import Policy, policy_from_json, policy_from_text
from offramp.policies.base import first_exit
from offramp.serving.operating_points import OperatingPoints
from tests.evaluation.made_traces import random_trace
from tests.fuzz.contract import Target
from tests.tiny import tiny_model

LAYERS = (1, 2, 4, 5)
LOGITS = torch.tensor([[[0.1, 2.0, -1.0], [1.0, 1.0, 1.0], [5.0, -5.0, 0.0]]]).repeat(4, 1, 1)
TEXTS = [
    *("entropy(0.1)", "entropy(0.1, normalised=True) | window(8)", "patience(2) & confidence(0.8)", "fixed(4)"),
    *("confidence([0.9, 0.8, 0.7, 0.6, 0.5])", "patience(2, tolerance=0.5)", "ruled_out(0.3)", "scripted([1, 2, 4])"),
]
"""As people type them."""


def read_text(path: Path) -> None:
    """A file stands in for what is typed."""
    _can_be_used(policy_from_text(path.read_bytes().decode("utf-8", "replace")))


def _can_be_used(policy: Policy) -> None:
    """Read, it can be written, compared and asked."""
    assert policy_from_text(str(policy)) == policy
    assert policy_from_json(json.loads(json.dumps(policy.to_json()))) == policy
    policy.check("classification", LAYERS)
    assert first_exit(policy, LOGITS, LAYERS).shape == (3,)


def read_policy(path: Path) -> None:
    found = folder_policy(path.parent)
    assert found is not None
    with suppress(OfframpError):  # not with every number of layers
        _can_be_used(found[0])


MODEL = tiny_model(layers=6, num_labels=2)
OLD, NEW = random_trace(data="old"), random_trace(data="new")


def made_certificate() -> bytes:
    found = calibrate_trace(OLD, Promise(Inconsistency(), 0.5), policy="entropy(0.55, normalised=True)")
    return json.dumps(certificate_of(found, OLD, weights_digest(MODEL)).to_json()).encode()


def read_and_rely_on(path: Path) -> None:
    """What `check`, `predict` and `serve` do with a certificate."""
    MODEL.name_or_path = str(path.parent)
    runs = RunAs("fp32", 32)
    say_own_policy(MODEL, runs)
    OperatingPoints(MODEL, runs=runs)
    certificate = read_certificate(path.parent)
    refuse_incomplete(certificate, path.parent)
    with suppress(OfframpError):  # it may be of other rows, or exits
        check_promise(NEW, certificate)


def _in_json(text: str) -> bytes:
    return json.dumps({"policy": policy_from_text(text).to_json(), "gate_threshold": 0.5}).encode()


TARGETS = {
    "policy-text": Target("policy.txt", read_text, lambda: [text.encode() for text in TEXTS], blames="nothing"),
    "certificate": Target("policy.json", read_and_rely_on, lambda: [made_certificate()], shape="json"),
    "policy": Target("policy.json", read_policy, lambda: [_in_json(text) for text in TEXTS], shape="json"),
}
