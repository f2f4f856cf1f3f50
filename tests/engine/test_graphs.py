"""The graphs give the reference's answers, whatever the company. Needs a CUDA device and Triton."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch

from offramp.engine.graphs import why_not
from offramp.engine.graphs.costs import Costs
from offramp.engine.graphs.sizes import fitting, token_sizes
from offramp.engine.graphs.stages import stages_of
from offramp.engine.runner import Packed
from offramp.models import GateSettings
from offramp.policies import Confidence, Entropy, Fixed, Patience, RuledOut, Scripted, Window
from tests.engine.on_device import (
    DEVICE,
    ROWS,
    batch_for,
    check_answers,
    gathered,
    interrupted_at,
    needs_device,
    run,
    runner,
)
from tests.tiny import FAMILIES, VOCABULARY, tiny_gated_model, tiny_model

SCRIPT = tuple(1 + row * 7 % 4 for row in range(ROWS))
POLICIES = [
    Entropy(0.6),
    Entropy(0.9, normalised=True) | Window(2),
    Confidence((0.9, 0.8, 0.7, 0.6)),
    Patience(1),
    Patience(2) & Confidence(0.5),
    RuledOut(0.05),
    Window(3, rule="trend"),
    Scripted(SCRIPT),
    Fixed(2),
    Fixed(4),
]
HEADS: list[dict[str, Any]] = [
    {},
    {"pooling": "mean"},
    {"pooling": "max+first"},
    {"poolers": 1, "classifiers": 1},
    {"poolers": 0, "pooling": "first+mean+max"},
    {"poolers": 2, "pooler_size": 24},
    {"exit_layers": [2, 4, 4], "poolers": [0, 1, 2], "classifiers": [0, 1, 2]},
    {"pooling": ["mean", "max+first", "mean", "first"]},
    {"exit_layers": [4]},
    {"exit_layers": [4, 4], "poolers": [0, 1], "classifiers": [0, 1]},
]
TWICE_AT_THE_END = len(HEADS) - 1
SPLITS = [(ROWS,), (1, 1, 58), (7,) * 8 + (4,), (1,) * ROWS]


@functools.cache
def case(
    family: str = "bert", head: int = 0, dtype: torch.dtype = torch.float32
) -> tuple[Any, dict[str, torch.Tensor]]:
    torch.manual_seed(3)
    model = tiny_model(family, **HEADS[head]).to(DEVICE, dtype)
    return model, batch_for(family)


@needs_device
@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_answers_are_the_references(family: str, policy: Any) -> None:
    model, batch = case(family)
    engine = runner(model, policy)
    for split in SPLITS:
        check_answers(engine, model, policy, batch, split)


@needs_device
@pytest.mark.parametrize("policy", [Entropy(0.6), Patience(1)], ids=str)
@pytest.mark.parametrize("head", range(len(HEADS)), ids=lambda head: str(HEADS[head]))
def test_every_kind_of_head(head: int, policy: Any) -> None:
    model, batch = case(head=head)
    for together in (True, False):
        engine = runner(model, policy, together=together)
        engine.few = 0 if together else 10**6  # rows move, or stay where they are
        check_answers(engine, model, policy, batch, (ROWS,))
        check_answers(engine, model, policy, batch, (20, 40))


@needs_device
@pytest.mark.parametrize("head", [0, 4, 6, 8, TWICE_AT_THE_END])
@pytest.mark.parametrize("family", FAMILIES)
def test_recording_asks_every_exit(family: str, head: int) -> None:
    model, batch = case(family, head)
    exits, logits = run(runner(model, Entropy(0.6), record=True), batch, (25, 35))
    expected = torch.stack(model.run(**batch).logits, 1).detach().cpu().numpy()
    np.testing.assert_allclose(logits, expected, atol=2e-4)
    assert (exits == expected.shape[1] - 1).all()


@needs_device
def test_a_policy_begins_with_its_state_where_nobody_leaves_on_the_way() -> None:
    model, batch = case(head=TWICE_AT_THE_END)
    policy = Scripted((5,) * ROWS)  # not by the first of the two exits
    check_answers(runner(model, policy), model, policy, batch, (ROWS,))


@needs_device
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"])
def test_activations(activation: str) -> None:
    from offramp.models import MultiExitConfig, MultiExitForSequenceClassification
    from tests.tiny import tiny_backbone

    backbone = tiny_backbone("bert")
    backbone.hidden_act = activation
    torch.manual_seed(0)
    model = (
        MultiExitForSequenceClassification(MultiExitConfig(backbone_config=backbone, num_labels=3)).eval().to(DEVICE)
    )
    _, batch = case()
    check_answers(runner(model, Fixed(4)), model, Fixed(4), batch, (ROWS,))


@needs_device
@pytest.mark.parametrize("family", FAMILIES)
def test_bf16_is_near_the_reference_and_the_same_in_any_company(family: str) -> None:
    model, batch = case(family, 0, torch.bfloat16)
    _, reference = run(runner(model, Fixed(4), dtype=torch.bfloat16), batch)
    expected = model.answer(Fixed(4), **batch).logits.float().cpu().numpy()
    assert np.abs(reference - expected).max() < 0.15 * np.abs(expected).max()
    policy = Scripted(SCRIPT)
    first = None
    for split in SPLITS:
        for budget, few in ((256, 0), (4096, 0), (4096, 4096)):
            engine = runner(model, policy, dtype=torch.bfloat16, budget=budget)
            engine.few = few
            exits, logits = run(engine, batch, split)
            first = logits if first is None else first
            np.testing.assert_array_equal(logits, first)
            np.testing.assert_array_equal(exits + 1, SCRIPT)


@needs_device
@pytest.mark.parametrize("few", [0, 10**6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_that_is_not_finite_fails_alone(dtype: torch.dtype, few: int) -> None:
    model, batch = case(dtype=dtype)
    policy = Scripted(SCRIPT)
    clean = runner(model, policy, dtype=dtype)
    clean.few = few
    bad = torch.zeros(ROWS, dtype=torch.bool)
    bad[[3, 17, 41]] = True
    ids = batch["input_ids"].clone()
    ids[ids == 4] = 5
    batch = {**batch, "input_ids": ids}
    expected = run(clean, batch)
    ids = ids.clone()
    ids[bad, 0] = 4
    words = model.backbone.model.embeddings.word_embeddings.weight
    kept = words[4].clone()
    try:
        with torch.no_grad():
            words[4] = torch.nan
        engine = runner(model, policy, dtype=dtype)
        engine.few = few
        exits, logits = run(engine, {**batch, "input_ids": ids})
    finally:
        with torch.no_grad():
            words[4] = kept
    np.testing.assert_array_equal(exits, expected[0])
    np.testing.assert_array_equal(logits[~bad.numpy()], expected[1][~bad.numpy()])
    assert np.isnan(logits[bad.numpy()]).all()


@needs_device
def test_nothing_is_lost_over_many_submits() -> None:
    model, _ = case()
    draw = np.random.default_rng(0)
    total = 3000
    script = tuple(int(layer) for layer in draw.integers(1, 5, total))
    engine = runner(model, Scripted(script), budget=512)
    finished, ticket, most = [], 0, 0
    while ticket < total:
        rows = min(int(draw.integers(1, 90)), total - ticket)
        lengths = draw.integers(1, 41, rows)
        ids = draw.integers(4, VOCABULARY, lengths.sum())
        finished += engine.submit(Packed(np.arange(ticket, ticket + rows), lengths, ids))
        ticket += rows
        most = max(most, ticket - sum(map(len, finished)))
        if draw.random() < 0.1:
            finished += engine.flush()
            assert sum(map(len, finished)) == ticket
    exits, _ = gathered(finished + engine.flush(), total)
    np.testing.assert_array_equal(exits + 1, script)
    assert 0 < most < 1500  # some wait for company, but not ever more of them
    assert not engine.flush()


@needs_device
@pytest.mark.parametrize("split", [(ROWS,), (7,) * 8 + (4,)], ids=str)
@pytest.mark.parametrize("wait", [1, 2, 4])
def test_an_interrupt_leaves_nothing_behind(split: tuple[int, ...], wait: int) -> None:
    """Wherever the host was waiting, after `drop` the next rows get their own answers."""
    model, batch = case()
    engine = runner(model, Entropy(0.6))
    expected = run(engine, batch)
    with interrupted_at(wait), pytest.raises(KeyboardInterrupt):
        run(engine, batch, split)
    engine.drop()
    for again in (split, (ROWS,)):
        exits, logits = run(engine, batch, again)
        np.testing.assert_array_equal(exits, expected[0])
        np.testing.assert_allclose(logits, expected[1], atol=2e-4)


@needs_device
def test_a_padding_token_inside_a_text_has_robertas_position() -> None:
    model, batch = case("roberta")
    ids = batch["input_ids"].clone()
    ids[::3, 1] = model.backbone.config.pad_token_id
    check_answers(runner(model, Entropy(0.6)), model, Entropy(0.6), {**batch, "input_ids": ids}, (20, 40))


@needs_device
def test_regression() -> None:
    torch.manual_seed(0)
    model = tiny_model(num_labels=1).to(DEVICE)
    _, batch = case()
    for policy in (Patience(1, tolerance=0.5), Fixed(3)):
        check_answers(runner(model, policy), model, policy, batch, (11, 49))


def test_costs_say_what_is_worth_running_and_moving() -> None:
    stages = {256: 30e-6, 512: 36e-6, 1024: 48e-6, 2048: 72e-6, 4096: 125e-6, 8192: 220e-6, 16384: 430e-6}
    costs = Costs(stages, asking=40e-6, moving=8e-6)
    assert costs.few() == 2048  # half of 4096 tokens saves 53 µs
    assert costs.worth(16384) == 8192  # 26.9 ns a token, where a full batch takes 26.2
    assert Costs({256: 30e-6, 512: 31e-6}, asking=40e-6, moving=8e-6).worth(512) == 384


@pytest.mark.parametrize(
    ("policy", "layers", "record", "expected"),
    [
        (Entropy(0.1), (1, 2, 4), False, [(0, 1, (0,)), (1, 2, (1,)), (2, 4, (2,))]),
        (Entropy(0.1), (2, 4, 4), False, [(0, 2, (0,)), (2, 4, (1, 2))]),
        (Fixed(4), (2, 4, 4), False, [(0, 2, ()), (2, 4, (2,))]),
        (Fixed(2), (2, 4), False, [(0, 2, (0,))]),
        (Fixed(2), (2, 4), True, [(0, 2, (0,)), (2, 4, (1,))]),
    ],
)
def test_stages_end_where_somebody_may_leave(policy: Any, layers: Any, record: bool, expected: Any) -> None:
    stages = stages_of(policy, layers, record)
    assert [(stage.layers.start, stage.layers.stop, stage.exits) for stage in stages] == expected


def test_sizes_fill_up_little() -> None:
    sizes = token_sizes(24576)
    assert sizes[-1] == 24576
    assert all(size % 32 == 0 for size in sizes)
    for needed in range(600, 24576, 97):
        assert needed <= fitting(sizes, needed) < 1.22 * needed


def test_what_graphs_cannot_run_is_said() -> None:
    from offramp.engine.graphs.support import _why_not_this_model

    assert "gated" in str(_why_not_this_model(tiny_gated_model(settings=GateSettings(sparsity=0.4))))
    assert "spans" in str(_why_not_this_model(tiny_model(span=True)))  # type: ignore[arg-type]
    assert _why_not_this_model(tiny_model("albert")) is None
    assert "CUDA device" in str(why_not(tiny_model(), "cpu"))
