"""ElasticBERT: entropy and patience, gradient equilibrium, static truncation, training runs, its FLOPs counter."""

from __future__ import annotations

import re

import numpy as np
import pytest
from torch.nn import functional as F

from offramp.evaluation import elue_macs, elue_mflops, speed_up
from offramp.policies import Entropy, Patience, Policy, entropy, first_exit
from offramp.recipes import ElasticBERT
from offramp.recipes.base import Recipe
from offramp.training import PhaseGradients, train_on_batches
from tests.golden.cases import (
    AFTER_TRAINING,
    LOGITS,
    LOSS,
    NO_CLIPPING,
    GoldenCase,
    assert_gradients,
    assert_trained,
    exit_logits,
    gradients_of,
    only_phase,
)
from tests.golden.legacy_adamw import LegacyAdamW

CHECKED = (
    r"inputs\.npz:(input_ids|attention_mask|token_type_ids|labels)$",
    r"outputs\.npz:(exit_logits|eval_loss_sum|entropy)$",
    r"outputs\.npz:entropy_(thresholds|exit_layer|exit_logits|speed_up)$",
    r"outputs\.npz:patience(_(exit_layer|exit_logits|speed_up)(_reg.*)?)?$",
    r"grads\.npz:(loss|loss_per_exit|(ge|plain)/grad_norms|ge/grad/.*)$",
    r"static\.npz:(logits|loss)$",
    r"train_run\.npz:(lr|exit_logits_after|mean_loss|param_after/.*)$",
    r"flops\.npz:(static|dynamic_all_exits)$",
)


@pytest.mark.golden("elasticbert", needs=r"outputs\.npz:")
def test_every_exit(case: GoldenCase) -> None:
    stored, model = case.arrays("outputs.npz"), case.load()
    trace = exit_logits(model, case.batch())
    np.testing.assert_allclose(trace, stored["exit_logits"], **LOGITS)
    np.testing.assert_allclose(model(**case.batch(labels="labels")).loss.item(), stored["eval_loss_sum"], rtol=1e-5)
    if "entropy" in stored:
        np.testing.assert_allclose(entropy(trace), stored["entropy"], **LOGITS)


def settings_of(stored: dict[str, np.ndarray]) -> list[tuple[Policy, str, int]]:
    """Every stored setting: the policy, the suffix of its arrays, its row in them."""
    found: list[tuple[Policy, str, int]] = []
    for row, threshold in enumerate(stored.get("entropy_thresholds", ())):
        found.append((Entropy(float(threshold)), "entropy", row))
    for name in stored:
        if match := re.fullmatch(r"patience_exit_layer(_reg(.*))?", name):
            tolerance = float(match[2]) if match[2] else None
            for row, patience in enumerate(stored["patience"]):
                found.append((Patience(int(patience), tolerance), f"patience{match[1] or ''}", row))
    return found


@pytest.mark.golden("elasticbert", needs=r"outputs\.npz:")
def test_entropy_and_patience(case: GoldenCase) -> None:
    stored, model, batch = case.arrays("outputs.npz"), case.load(), case.batch()
    trace, task = exit_logits(model, batch), model.objective.name
    settings = settings_of(stored)
    assert settings
    for policy, suffix, row in settings:
        kind, _, rest = suffix.partition("_")
        rest = rest and f"_{rest}"
        answer = model.answer(policy, **batch)
        assert answer.exit_layer.tolist() == stored[f"{kind}_exit_layer{rest}"][row].tolist(), policy
        assert answer.exit.tolist() == first_exit(policy, trace, model.exits.layers, task).tolist(), policy
        np.testing.assert_allclose(answer.logits, stored[f"{kind}_exit_logits{rest}"][row], **LOGITS)
        found = speed_up(answer.exit_layer, model.backbone.depth)
        assert found == pytest.approx(stored[f"{kind}_speed_up{rest}"][row])


@pytest.mark.golden("elasticbert", needs=r"grads\.npz:")
def test_gradient_equilibrium(case: GoldenCase) -> None:
    stored, batch = case.arrays("grads.npz"), case.batch(labels="labels")
    model = case.load(double=True)
    phase = only_phase(ElasticBERT(schedule=NO_CLIPPING), model)
    each = [float(loss.detach()) for loss in PhaseGradients(model, phase).forward(batch).losses()]
    np.testing.assert_allclose(each, stored["loss_per_exit"], **LOSS)
    loss, _, gradients = gradients_of(model, phase, batch)
    np.testing.assert_allclose(loss, stored["loss"], **LOSS)
    assert_gradients(case, model, gradients, stored, "ge")
    plain = only_phase(ElasticBERT(equilibrium=False, schedule=NO_CLIPPING), model)
    assert_gradients(case, model, gradients_of(model, plain, batch)[2], stored, "plain")


@pytest.mark.golden("elasticbert", needs=r"static\.npz:")
def test_static_truncation(case: GoldenCase) -> None:
    stored, batch = case.arrays("static.npz"), case.batch(labels="labels")
    labels = batch.pop("labels")
    for k in range(1, len(stored["logits"]) + 1):
        model = case.load(layers=k, exits="last")
        assert (model.backbone.depth, len(model.exits)) == (k, 1)
        logits = exit_logits(model, batch)[0]
        np.testing.assert_allclose(logits, stored["logits"][k - 1], **LOGITS)
        np.testing.assert_allclose(float(F.cross_entropy(logits, labels)), stored["loss"][k - 1], rtol=1e-5)
    if example := case.settings.get("static_example"):
        model = case.load(layers=example["num_hidden_layers"], exits="last")
        assert sum(parameter.numel() for parameter in model.parameters()) == example["n_params"]


def run(case: GoldenCase, recipe: Recipe) -> None:
    stored, model = case.arrays("train_run.npz"), case.load(double=True)
    steps = train_on_batches(model, recipe, case.batches(), make_optimiser=LegacyAdamW)
    np.testing.assert_allclose([step.learning_rates[0] for step in steps], stored["lr"], rtol=1e-9)
    np.testing.assert_allclose(np.mean([step.loss for step in steps]), stored["mean_loss"], **AFTER_TRAINING)
    np.testing.assert_allclose(exit_logits(model, case.batch()), stored["exit_logits_after"], **AFTER_TRAINING)
    assert_trained(case, model, stored)


@pytest.mark.golden("elasticbert", needs=r"train_run\.npz:")
def test_training_run(case: GoldenCase) -> None:
    run(case, ElasticBERT(schedule=case.schedule()))


@pytest.mark.golden("elasticbert", needs=r"flops\.npz:")
def test_flops(case: GoldenCase) -> None:
    stored = case.arrays("flops.npz")
    printed = []
    for hidden, heads, ffn, layers, length, classes, macs in stored["static"].astype(int):
        found = elue_macs(hidden, heads, ffn, layers, length, classes)
        assert found == macs
        printed.append(f"{round(elue_mflops(found), 2)} MFlops")
    assert printed == case.settings.get("static_strings", printed)
    for hidden, heads, ffn, layers, length, classes, macs in stored.get("dynamic_all_exits", np.empty((0, 7))).astype(
        int
    ):
        assert elue_macs(hidden, heads, ffn, layers, length, classes, exits=layers) == macs
