"""EBERT: gates and answers, its training pass with recorded noise, top-k gates, a training run, and its FLOPs."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from offramp.engine import Engine
from offramp.interop.dialect import Model
from offramp.models.flops import EbertLayer
from offramp.recipes import EBERT, Forward, Phase, Schedule
from offramp.tasks.encoding import Row
from offramp.training import PhaseGradients
from offramp.training.loop import run_phase
from tests.golden.cases import AFTER_TRAINING, LOGITS, LOSS, GoldenCase, assert_gradients, assert_trained, gradients_of
from tests.golden.legacy_adamw import LegacyAdamW

CHECKED = (
    r"inputs\.npz:(input_ids|attention_mask|token_type_ids|labels|start_positions|end_positions)$",
    r"outputs\.npz:((head|ffn)_(gate_logits|masks)|logits|logits_batch1|(start|end)_logits|last_hidden_first_token)$",
    r"outputs\.npz:(eval_loss|eval_loss_parts|head_kept_counts|ffn_kept_counts|flops)$",
    r"train\.npz:(u_head|u_ffn|head_masks|ffn_masks|loss|loss_parts|logits|(start|end)_logits|gumbel/.*|bn_after/.*)$",
    r"topk\.npz:[^/]*/(logits|eval_loss|head_masks|ffn_masks)$|topk\.npz:train/(loss|logits|grad_norms|grad/.*)$",
    r"train_run\.npz:(u_head|u_ffn|loss|grad_norm|logits_after|(start|end)_logits_after|param_after/.*)$",
    r"flops\.npz:(base|large)/(head_kept_counts|ffn_kept_neurons|table)$",
)
PENALTY = {"rtol": 1e-6, "atol": 1e-6}  # the original adds gates up in float32
GRADIENT = 2e-5  # for the same reason
FLOPS = 1e-6
SHAPES = {"base": (768, 12, 3072), "large": (1024, 16, 4096)}


def assert_report(layer: EbertLayer, length: int, heads: np.ndarray, neurons: np.ndarray, expected: np.ndarray) -> None:
    """[original, dynamic average, ratio], within the rounding of the original, which adds up in float32.

    `heads` (n, heads) and `neurons` (n,) are the shares of samples, and of neurons, that were kept.
    """
    original, dynamic, ratio = expected
    assert len(heads) * layer.all_kept(length) == pytest.approx(original, rel=FLOPS)
    ours = sum(layer.gated(length, h.sum(), r * layer.intermediate) for h, r in zip(heads, neurons, strict=True))
    rounding = (heads.size + len(heads)) * float(np.finfo(np.float32).eps)  # half a unit for each of 2 additions
    assert ours == pytest.approx(dynamic, rel=rounding)
    assert ours / original == pytest.approx(ratio, rel=rounding)


@pytest.mark.golden("ebert", needs=r"flops\.npz:")
@pytest.mark.parametrize("size", SHAPES)
def test_flops_functions(case: GoldenCase, size: str) -> None:
    stored, layer = case.arrays("flops.npz"), EbertLayer(*SHAPES[size], legacy=True)
    heads = stored[f"{size}/head_kept_counts"] / case.settings["num_samples"]
    neurons = stored[f"{size}/ffn_kept_neurons"] / layer.intermediate
    for length, *expected in stored[f"{size}/table"]:
        at = int(length)
        assert_report(layer, at, heads, neurons, expected[:3])
        parts = [layer.head(at), layer.ffn(at), layer.head_predictor(), layer.ffn_predictor()]
        assert parts == pytest.approx(expected[3:], rel=FLOPS)


@pytest.mark.golden("ebert", needs=r"outputs\.npz:flops$")
def test_flops_report(case: GoldenCase) -> None:
    stored, config = case.arrays("outputs.npz"), case.config
    layer = EbertLayer(config["hidden_size"], config["num_attention_heads"], config["intermediate_size"], legacy=True)
    samples = stored["head_masks"].shape[1]
    heads, neurons = stored["head_kept_counts"] / samples, stored["ffn_kept_counts"].mean(1) / samples
    assert_report(layer, case.settings["flops_length"], heads, neurons, stored["flops"])


def recipe_of(case: GoldenCase, **changes: Any) -> EBERT:
    """The settings a case was made with."""
    config = case.config
    settings: dict[str, Any] = {
        "target": case.settings["target_flops_ratio"],
        "penalty": config["loss_lambda"],
        "heads": config["head_mask_mode"],
        "neurons": config["ffn_mask_mode"],
    }
    return EBERT(**(settings | changes), padded_mean=True, legacy_flops=True, schedule=Schedule(clip=float("inf")))


def gated_phase(case: GoldenCase, model: Model, **changes: Any) -> Phase:
    recipe = recipe_of(case, fine_tune=False, **changes)
    recipe.prepare(model)
    (phase,) = recipe.phases(model)
    return phase


def forward_of(model: Model, phase: Phase, batch: dict[str, Tensor], training: bool = False) -> Forward:
    with PhaseGradients(model, phase) as gradients:
        model.train(training)
        return gradients.forward(batch)


def replay_noise(model: Model, heads: np.ndarray, neurons: np.ndarray) -> None:
    """Give the gates the recorded noise (n, B, units) in place of fresh."""
    for layer, u_heads, u_neurons in zip(model.gates.layers, heads, neurons, strict=True):
        layer.heads.uniform = partial(recorded, u_heads)
        layer.neurons.uniform = partial(recorded, u_neurons)


def recorded(noise: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(noise).view_as(like)


def opened(case: GoldenCase, double: bool = False) -> Model:
    """The model, with padding among the places where a span may lie, as in the original."""
    model = case.load(double)
    model.exits.pool_padding = True
    return model


def assert_said(forward: Forward, stored: dict[str, np.ndarray], tolerance: Any, suffix: str = "") -> None:
    """The last exit's logits, under the original's names; of a span's run only the start's are kept."""
    logits = forward.logits[-1].detach()
    spans = {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}
    checked = 0
    for name, actual in ({"logits": logits} if logits.ndim == 2 else spans).items():
        if name + suffix in stored:
            np.testing.assert_allclose(actual, stored[name + suffix], **tolerance)
            checked += 1
    assert checked


def assert_kept(forward: Forward, stored: dict[str, np.ndarray], key: str = "") -> None:
    for kind, name in (("heads", "head_masks"), ("neurons", "ffn_masks")):
        gates = torch.stack([getattr(kept, kind).detach() for kept in forward.gates])
        np.testing.assert_array_equal(gates.round(), stored[key + name])


def parts_of(case: GoldenCase, forward: Forward, **changes: Any) -> list[float]:
    """[task loss, (s − s*)², heads' term, neurons' term, s]"""
    parts = recipe_of(case, **changes).penalty_parts(forward)
    return [float(part.detach()) for part in (forward.loss(-1), *parts)]


@pytest.mark.golden("ebert", needs=r"outputs\.npz:")
def test_gates_and_answers(case: GoldenCase) -> None:
    stored, model = case.arrays("outputs.npz"), opened(case)
    inputs, gates = case.batch(), model.gates
    forward = forward_of(model, gated_phase(case, model), case.batch(labels="labels"))
    assert_said(forward, stored, LOGITS)
    assert_kept(forward, stored)
    with torch.no_grad():
        states = model.run(**inputs).states
        np.testing.assert_allclose(states[-1][:, 0], stored["last_hidden_first_token"], **LOGITS)
        for index, hidden in enumerate(states[:-1]):
            logits = gates.layer(index).heads.logits(gates.head_input(index, hidden, inputs["attention_mask"]))
            np.testing.assert_allclose(logits, stored["head_gate_logits"][index], **LOGITS)
    heads = torch.stack([kept.heads.detach() for kept in forward.gates]).sum(1)
    neurons = torch.stack([kept.neurons.detach() for kept in forward.gates]).sum(1)
    np.testing.assert_array_equal(heads, stored["head_kept_counts"])
    np.testing.assert_array_equal(neurons, stored["ffn_kept_counts"])
    np.testing.assert_allclose(parts_of(case, forward), stored["eval_loss_parts"], rtol=1e-5, atol=1e-6)
    loss = gated_phase(case, model).losses[0](forward)
    np.testing.assert_allclose(float(loss.detach()), stored["eval_loss"], rtol=1e-5)


@pytest.mark.golden("ebert", needs=r"outputs\.npz:ffn_gate_logits$")
def test_neuron_gates_see_the_attention_block(case: GoldenCase) -> None:
    stored, model, seen = case.arrays("outputs.npz"), opened(case), []
    for layer in model.gates.layers:
        layer.neurons.predictor.register_forward_hook(lambda _, __, logits: seen.append(logits.detach()))
    with torch.no_grad():
        model.run(**case.batch())
    np.testing.assert_allclose(torch.stack(seen), stored["ffn_gate_logits"], **LOGITS)


@pytest.mark.golden("ebert", needs=r"outputs\.npz:logits_batch1$")
def test_one_at_a_time(case: GoldenCase) -> None:
    stored, model = case.arrays("outputs.npz"), opened(case)
    rows = len(stored["logits_batch1"])
    with torch.no_grad():
        each = torch.cat([model(**case.batch(slice(row, row + 1))).logits for row in range(rows)])
    np.testing.assert_allclose(each, stored["logits_batch1"], **LOGITS)


@pytest.mark.golden("ebert", needs=r"outputs\.npz:logits$")
def test_rows_without_padding_can_be_answered_as_if_padded(case: GoldenCase) -> None:
    """The original pads every row to one length, and its first gates see that."""
    stored, model, batch = case.arrays("outputs.npz"), opened(case), case.batch()
    model.pad_gates_to(batch["input_ids"].shape[1])
    lengths = batch["attention_mask"].sum(1).tolist()
    names = ("input_ids", "token_type_ids") if "token_type_ids" in batch else ("input_ids",)
    rows = [Row(*(batch[name][row, :length].tolist() for name in names)) for row, length in enumerate(lengths)]
    engine = Engine(model, backend="torch")
    together = list(engine.answer_rows(rows))
    each = [next(iter(engine.answer_rows([row]))) for row in rows]
    for answers in (together, each):
        np.testing.assert_allclose(np.stack([answer.logits for answer in answers]), stored["logits"], **LOGITS)


@pytest.mark.golden("ebert", needs=r"train\.npz:")
def test_training_pass(case: GoldenCase) -> None:
    stored, batch, model = case.arrays("train.npz"), case.batch(labels="labels"), opened(case, double=True)
    phase = gated_phase(case, model)
    replay_noise(model, stored["u_head"], stored["u_ffn"])
    model.train()
    loss, _, gradients = gradients_of(model, phase, batch)
    np.testing.assert_allclose(loss, stored["loss"], **PENALTY)
    assert_gradients(case, model, gradients, stored, "gumbel", GRADIENT)
    buffers = dict(model.named_buffers())
    for name, expected in stored.items():
        if name.startswith("bn_after/"):
            ours = our_buffer(case, name.removeprefix("bn_after/"))
            np.testing.assert_allclose(buffers[ours], expected, rtol=1e-6, atol=1e-7, err_msg=name)
    forward = forward_of(opened(case, double=True), phase, batch)  # other statistics, to see that they matter
    assert parts_of(case, forward)[0] != pytest.approx(stored["loss_parts"][0], rel=1e-6)
    again = opened(case, double=True)
    replay_noise(again, stored["u_head"], stored["u_ffn"])
    forward = forward_of(again, phase, batch, training=True)
    assert_kept(forward, stored)
    assert_said(forward, stored, LOSS)
    np.testing.assert_allclose(parts_of(case, forward), stored["loss_parts"], **PENALTY)


def our_buffer(case: GoldenCase, original: str) -> str:
    """`P.encoder.layer.0.intermediate.predictor.1.running_mean` under our name."""
    layer = original.split("encoder.layer.")[1].split(".")[0]
    kind = "neurons" if "intermediate" in original else "heads"
    return f"gates.layers.{layer}.{kind}.predictor.{original.split('predictor.')[1]}"


@pytest.mark.golden("ebert", needs=r"topk\.npz:")
def test_top_k(case: GoldenCase) -> None:
    stored, batch = case.arrays("topk.npz"), case.batch(labels="labels")
    target = case.settings["topk"]["target_flops_ratio"]
    modes = {
        "topk": ("topk", "topk"),
        "head_topk_ffn_gumbel": ("topk", "gumbel"),
        "head_gumbel_ffn_topk": ("gumbel", "topk"),
    }
    for key, (heads, neurons) in modes.items():
        model = opened(case)
        phase = gated_phase(case, model, heads=heads, neurons=neurons, target=target)
        forward = forward_of(model, phase, batch)
        assert_kept(forward, stored, f"{key}/")
        np.testing.assert_allclose(forward.logits[-1].detach(), stored[f"{key}/logits"], **LOGITS)
        np.testing.assert_allclose(float(phase.losses[0](forward).detach()), stored[f"{key}/eval_loss"], rtol=1e-5)
    model = opened(case, double=True)
    phase = gated_phase(case, model, heads="topk", neurons="topk", target=target)
    model.train()
    loss, _, gradients = gradients_of(model, phase, batch)
    np.testing.assert_allclose(loss, stored["train/loss"], **LOSS)
    assert_gradients(case, model, gradients, stored, "train")
    again = opened(case, double=True)
    phase = gated_phase(case, again, heads="topk", neurons="topk", target=target)
    np.testing.assert_allclose(
        forward_of(again, phase, batch, training=True).logits[-1].detach(), stored["train/logits"], **LOSS
    )


@pytest.mark.golden("ebert", needs=r"train_run\.npz:")
def test_training_run(case: GoldenCase) -> None:
    stored, run, model = case.arrays("train_run.npz"), case.settings["train_run"], opened(case, double=True)
    rate = float(str(run["predictor_lr"]).split()[0])
    schedule = Schedule(learning_rate=run["lr"], epochs=run["steps"], clip=float(str(run["clip"]).split()[0]))
    phase = dataclasses.replace(gated_phase(case, model, predictor_rate=rate), schedule=schedule)
    batch, seen = case.batch(labels="labels"), []
    noise = iter(zip(stored["u_head"], stored["u_ffn"], strict=True))
    replay_noise(model, *next(noise))
    for step in run_phase(model, phase, [batch], 1, LegacyAdamW):
        seen.append((step.loss, step.gradient_norm))
        if len(seen) < run["steps"]:
            replay_noise(model, *next(noise))
    np.testing.assert_allclose([loss for loss, _ in seen], stored["loss"], rtol=1e-5)
    np.testing.assert_allclose([norm for _, norm in seen], stored["grad_norm"], rtol=1e-4)
    assert_said(forward_of(model, phase, batch), stored, AFTER_TRAINING, "_after")
    assert_trained(case, model, stored)
