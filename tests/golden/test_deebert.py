"""DeeBERT, and what RomeBERT shares with it: exits, thresholds with and without the untrained last highway, stages."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from torch.nn import functional as F

from offramp.evaluation import cost_ratio, exit_counts
from offramp.policies import Entropy, entropy, first_exit
from offramp.recipes import DeeBERT
from offramp.training import train_on_batches
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
)
from tests.golden.legacy_adamw import LegacyAdamW

CHECKED = (
    r"inputs\.npz:(input_ids|attention_mask|token_type_ids|labels)$",
    r"outputs\.npz:(highway_logits|main_logits|highway_entropy|main_entropy|layer_first_token)$",
    r"outputs\.npz:(thresholds|exit_layer|exit_logits|exit_loss|exit_layer_fixed|exit_logits_fixed)$",
    r"outputs\.npz:per_layer_(thresholds|exit_layer)$",
    r"grads\.npz:stage[12]/(loss|total_grad_norm|grad_norms|grad/.*)$",
    r"train_run\.npz:(mean_loss|highway_logits_after|main_logits_after|param_after/.*)$",
)

METRICS = {"f1": f1_score, "mcc": matthews_corrcoef, "acc": accuracy_score}  # the first present is the score

highway_exits = pytest.mark.golden("deebert", "romebert", needs=r"outputs\.npz:")


@highway_exits
def test_every_exit(case: GoldenCase) -> None:
    stored = case.arrays("outputs.npz")
    model = case.load(legacy_last_exit=True)
    output = model(**case.batch(), output_hidden_states=True)
    logits = torch.stack(output.exit_logits).detach()
    np.testing.assert_allclose(logits[:-1], stored["highway_logits"], **LOGITS)
    np.testing.assert_allclose(logits[-1], stored["main_logits"], **LOGITS)
    np.testing.assert_allclose(entropy(logits[:-1]), stored["highway_entropy"], **LOGITS)
    if "main_entropy" in stored:
        np.testing.assert_allclose(entropy(logits[-1]), stored["main_entropy"], **LOGITS)
    if "layer_first_token" in stored:
        first_tokens = torch.stack([hidden[:, 0] for hidden in output.hidden_states[1:]])
        np.testing.assert_allclose(first_tokens.detach(), stored["layer_first_token"], **LOGITS)


@highway_exits
def test_thresholds_as_in_the_original(case: GoldenCase) -> None:
    check_thresholds(case, "")


@pytest.mark.golden("deebert", "romebert", needs=r"outputs\.npz:exit_layer_fixed")
def test_thresholds_without_the_untrained_highway(case: GoldenCase) -> None:
    check_thresholds(case, "_fixed")


def check_thresholds(case: GoldenCase, suffix: str) -> None:
    stored = case.arrays("outputs.npz")
    model = case.load(legacy_last_exit=suffix == "")
    batch, layers = case.batch(), model.exits.layers
    trace = exit_logits(model, batch)
    labels = case.batch(labels="labels")["labels"]
    for row, threshold in enumerate(stored["thresholds"]):
        policy = Entropy(float(threshold))
        live = model.answer(policy, **batch)
        offline = first_exit(policy, trace, layers)
        assert live.exit_layer.tolist() == stored[f"exit_layer{suffix}"][row].tolist(), threshold
        assert live.exit.tolist() == offline.tolist(), threshold
        np.testing.assert_allclose(live.logits, stored[f"exit_logits{suffix}"][row], **LOGITS)
        if not suffix and "exit_loss" in stored:
            loss = F.cross_entropy(live.logits, labels, reduction="none")
            np.testing.assert_allclose(loss, stored["exit_loss"][row], **LOGITS)


@pytest.mark.golden("deebert", "romebert", needs=r"outputs\.npz:per_layer_thresholds")
def test_one_threshold_for_each_layer(case: GoldenCase) -> None:
    stored = case.arrays("outputs.npz")
    policy = Entropy(tuple(stored["per_layer_thresholds"].tolist()))
    for legacy in (False, True):
        answer = case.load(legacy_last_exit=legacy).answer(policy, **case.batch())
        assert answer.exit_layer.tolist() == stored["per_layer_exit_layer"].tolist()


@pytest.mark.golden("deebert", needs=r"outputs\.npz:")
def test_untrained_last_highway_answers_only_in_the_original(case: GoldenCase) -> None:
    stored = case.arrays("outputs.npz")
    model = case.load(legacy_last_exit=True)
    untrained = len(model.exits) - 2
    hits = [
        int((model.answer(Entropy(float(s)), **case.batch()).exit == untrained).sum()) for s in stored["thresholds"]
    ]
    assert sum(hits) == case.settings.get("n_quirk_hits", sum(hits))


@pytest.mark.golden("deebert", needs=r"outputs\.npz:")
def test_evaluation_report(case: GoldenCase) -> None:
    model, labels = case.load(legacy_last_exit=True), case.batch(labels="labels")["labels"]
    trace, depth = exit_logits(model, case.batch()), model.backbone.depth
    sweep = case.settings.get("evaluate_sweep", [])
    kept = next((name for name in METRICS if sweep and name in sweep[0]["results"]), "acc")
    for row in sweep:
        answer = model.answer(Entropy(row["S"]), **case.batch())
        for name in METRICS.keys() & row["results"].keys():
            assert METRICS[name](labels, answer.logits.argmax(-1)) == pytest.approx(row["results"][name])
        if "exit_counts" in row:
            assert exit_counts(answer.exit_layer, depth) == {int(k): v for k, v in row["exit_counts"].items()}
            assert cost_ratio(answer.exit_layer, depth) == pytest.approx(row["cost_ratio"])
            assert METRICS[kept](labels, answer.logits.argmax(-1)) == pytest.approx(row["score"])
    for highway, score in enumerate(case.settings.get("each_highway_score", [])):
        assert METRICS[kept](labels, trace[highway].argmax(-1)) == pytest.approx(score)


@pytest.mark.golden("deebert", needs=r"grads\.npz:")
@pytest.mark.parametrize("stage", [1, 2])
def test_stage(case: GoldenCase, stage: int) -> None:
    stored = case.arrays("grads.npz")
    model = case.load(double=True)
    phase = DeeBERT(schedule=NO_CLIPPING, clip_sees_frozen=True).phases(model)[stage - 1]
    batch = case.batch(slice(case.settings["batch_for_gradients"]), "labels")
    loss, norm, gradients = gradients_of(model, phase, batch)
    np.testing.assert_allclose(loss, stored[f"stage{stage}/loss"], **LOSS)
    np.testing.assert_allclose(norm, stored[f"stage{stage}/total_grad_norm"], rtol=1e-6)
    assert_gradients(case, model, gradients, stored, f"stage{stage}")
    if "trainable" in case.settings:
        trainable = {case.our_names(model).get(name) for name in case.settings["trainable"][f"stage{stage}"]}
        assert phase.trains == trainable - {None}


@pytest.mark.golden("deebert", needs=r"train_run\.npz:")
def test_training_run(case: GoldenCase) -> None:
    stored = case.arrays("train_run.npz")
    model = case.load(double=True)
    main = model.exits.poolers[str(model.exits.pooler_of[-1])].state_dict()
    for pooler in model.exits.poolers.values():  # the run began with the pre-trained pooler in every highway
        pooler.load_state_dict(main)
    steps = train_on_batches(
        model,
        DeeBERT(schedule=case.schedule(), clip_sees_frozen=True),
        case.batches(),
        make_optimiser=LegacyAdamW,
    )
    for number, phase in enumerate(("fine-tune", "exits")):
        mean = np.mean([step.loss for step in steps if step.phase == phase])
        np.testing.assert_allclose(mean, stored["mean_loss"][number], **AFTER_TRAINING)
    logits = exit_logits(model, case.batch())
    np.testing.assert_allclose(logits[:-1], stored["highway_logits_after"][:-1], **AFTER_TRAINING)
    np.testing.assert_allclose(logits[-1], stored["main_logits_after"], **AFTER_TRAINING)
    assert_trained(case, model, stored)
