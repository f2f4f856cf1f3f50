"""ELBERT: every rule, threshold, window and margin; equal and learned weights; its training run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from offramp.evaluation import cost_ratio
from offramp.policies import Entropy, Policy, RuledOut, Window, entropy, first_exit
from offramp.recipes import ELBERT, exit_weights
from offramp.training import PhaseGradients, Step, train_on_batches
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
    r"outputs\.npz:(exit_logits|norm_entropy|prob_class0|sweep_exit_layer|sweep_logits|sweep_cost)$",
    r"grads\.npz:(loss|equal/(loss|loss_per_exit|weights|grad_norms|grad/.*))$",
    r"grads\.npz:dyn_[^/]*/(loss|loss_per_exit|weights|W|W_grad|grad_norms|grad/.*)$",
    r"train_run\.npz:(mean_loss|W_after_step|W_grad_seen|lr|exit_logits_after|param_after/.*)$",
)

RULES = {"bias_1": "same_side", "bias_2": "trend", "bias_3": "stable"}


def policy_of(setting: dict[str, Any], published: bool = True) -> Policy:
    """The original's settings as a policy, looking at class 0 as the original does, or at the predicted label."""
    if setting["thres_name"] == "logits":
        return RuledOut(setting["exit_thres"])
    certain = Entropy(setting["exit_thres"], normalised=True)
    if setting["thres_name"] == "entropy":
        return certain
    rule = RULES[setting["thres_name"]]
    return certain | Window(
        int(setting["cnt_thres"]), rule, setting["margin"], range=setting["range_tmp"], published=published
    )


@pytest.mark.golden("elbert", needs=r"outputs\.npz:")
def test_every_exit(case: GoldenCase) -> None:
    stored = case.arrays("outputs.npz")
    trace = exit_logits(case.load(), case.batch())
    np.testing.assert_allclose(trace, stored["exit_logits"], **LOGITS)
    if "norm_entropy" in stored:
        np.testing.assert_allclose(entropy(trace) / np.log(trace.shape[-1]), stored["norm_entropy"], **LOGITS)
        np.testing.assert_allclose(trace.softmax(-1)[..., 0], stored["prob_class0"], **LOGITS)


@pytest.mark.golden("elbert", needs=r"outputs\.npz:sweep_exit_layer")
def test_rules(case: GoldenCase) -> None:
    stored, model, batch = case.arrays("outputs.npz"), case.load(), case.batch()
    trace = exit_logits(model, batch)
    for row, setting in enumerate(case.settings["sweeps"]):
        policy = policy_of(setting)
        answer = model.answer(policy, **batch)
        assert answer.exit_layer.tolist() == stored["sweep_exit_layer"][row].tolist(), setting
        assert answer.exit.tolist() == first_exit(policy, trace).tolist(), setting
        if trace.shape[-1] == 2:  # the corrected rule is the published one for two classes
            assert answer.exit.tolist() == first_exit(policy_of(setting, published=False), trace).tolist(), setting
        np.testing.assert_allclose(answer.logits, stored["sweep_logits"][row], **LOGITS)
        assert cost_ratio(answer.exit_layer, model.backbone.depth) == pytest.approx(stored["sweep_cost"][row])


@pytest.mark.golden("elbert", needs=r"grads\.npz:")
def test_equal_weights(case: GoldenCase) -> None:
    stored, batch = case.arrays("grads.npz"), case.batch(labels="labels")
    model = case.load(double=True)
    phase = only_phase(ELBERT("equal", schedule=NO_CLIPPING), model)
    loss, _, gradients = gradients_of(model, phase, batch)
    np.testing.assert_allclose(loss, stored.get("equal/loss", stored.get("loss")), **LOSS)
    assert_gradients(case, model, gradients, stored, "equal")
    if "equal/loss_per_exit" in stored:
        each = [float(value.detach()) for value in PhaseGradients(model, phase).forward(batch).losses()]
        np.testing.assert_allclose(each, stored["equal/loss_per_exit"], **LOSS)
        np.testing.assert_array_equal(stored["equal/weights"], 1.0)


@pytest.mark.golden("elbert", needs=r"grads\.npz:dyn_")
def test_dynamic_weights(case: GoldenCase) -> None:
    stored, batch = case.arrays("grads.npz"), case.batch(labels="labels")
    variants = sorted({name.split("/")[0] for name in stored if name.startswith("dyn_")})
    for variant in variants:
        model = case.load(double=True)
        phase = only_phase(ELBERT("dynamic", schedule=NO_CLIPPING), model)
        if variant == "dyn_init":
            np.testing.assert_array_equal(model.loss_weights.detach(), stored["dyn_init/W"])
        model.loss_weights.data = torch.from_numpy(stored[f"{variant}/W"])
        np.testing.assert_allclose(exit_weights(model.loss_weights).detach(), stored[f"{variant}/weights"], **LOSS)
        each = [float(value.detach()) for value in PhaseGradients(model, phase).forward(batch).losses()]
        np.testing.assert_allclose(each, stored[f"{variant}/loss_per_exit"], **LOSS)
        loss, _, gradients = gradients_of(model, phase, batch)
        np.testing.assert_allclose(loss, stored[f"{variant}/loss"], **LOSS)
        np.testing.assert_allclose(gradients["loss_weights"], stored[f"{variant}/W_grad"], **LOSS)
        assert_gradients(case, model, gradients, stored, variant)


@pytest.mark.golden("elbert", needs=r"train_run\.npz:")
def test_training_run(case: GoldenCase) -> None:
    stored, settings = case.arrays("train_run.npz"), case.settings["train_run"]
    model = case.load(double=True)
    seen: dict[str, list[np.ndarray]] = {"W_after_step": [], "W_grad_seen": []}

    def watch(step: Step) -> None:
        seen["W_after_step"].append(model.loss_weights.detach().numpy().copy())
        seen["W_grad_seen"].append(model.loss_weights.grad.numpy().copy())

    recipe = ELBERT(
        "dynamic",
        initial=settings["w_init"],
        weights_rate=settings["w_lr"],
        keep_gradient=True,
        schedule=case.schedule(),
    )
    steps = train_on_batches(model, recipe, case.batches(), make_optimiser=LegacyAdamW, on_step=watch)
    for name, values in seen.items():
        np.testing.assert_allclose(values, stored[name], **AFTER_TRAINING, err_msg=name)
    np.testing.assert_allclose([step.learning_rates for step in steps], stored["lr"], rtol=1e-9)
    np.testing.assert_allclose(np.mean([step.loss for step in steps]), stored["mean_loss"], **AFTER_TRAINING)
    np.testing.assert_allclose(exit_logits(model, case.batch()), stored["exit_logits_after"], **AFTER_TRAINING)
    assert_trained(case, model, stored)
