"""Gates: when they keep, what they see, and that everything else works with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AlbertConfig, AutoModel, AutoModelForSequenceClassification, BertConfig

import offramp
from offramp.errors import OfframpError
from offramp.models import GateSettings, MultiExitConfig, MultiExitForSequenceClassification, MultiExitModel
from offramp.models.gates import UnitGates
from offramp.models.skipping import Skipping
from offramp.policies import Entropy, first_exit
from tests.tiny import FAMILIES, GATES, SHAPE, rows_of, tiny_batch, tiny_gated_model, tiny_model, without_dropout


def units(logits: list[float], **settings: Any) -> UnitGates:
    """Gates with given logits, whatever they see."""
    made = UnitGates(4, len(logits), len(logits), settings.pop("mode", "gumbel"), replace(GATES, **settings), 1e-5)
    made.logits = lambda seen: torch.tensor([logits]).expand(len(seen), -1)  # type: ignore[method-assign]
    return made.eval()


def test_the_gates_of_these_tests_differ() -> None:
    kept = tiny_gated_model().run(**tiny_batch(8)).gates
    assert any(0 < float(layer.heads.mean(0)[0]) < 1 for layer in kept)
    assert all(0 < float(layer.neurons.mean()) < 1 for layer in kept)


@pytest.mark.parametrize(
    ("logits", "settings", "expected"),
    [
        ([0.0, -1e-6, 1e-6, 5.0], {}, [1, 0, 1, 1]),  # kept at 0
        ([0.0, 0.5, 0.7, 5.0], {"threshold": 0.7}, [0, 0, 1, 1]),
        ([3.0, 1.0, 2.0, 4.0, 5.0], {"mode": "topk", "sparsity": 0.4}, [1, 0, 0, 1, 1]),
        ([1.0, 1.0, 2.0, 3.0, 4.0], {"mode": "topk", "sparsity": 0.2}, [0, 0, 1, 1, 1]),  # what equals the k-th, too
        ([1.0, 2.0], {"mode": "topk", "sparsity": 0.4}, [1, 1]),  # k = 0
        (
            [float(n) for n in range(60)],
            {"mode": "topk", "sparsity": 1 - 0.8},
            [0] * 11 + [1] * 49,
        ),  # 0.19999… · 60
    ],
)
def test_which_are_kept(logits: list[float], settings: dict[str, Any], expected: list[int]) -> None:
    assert units(logits, **settings)(torch.zeros(1, 4))[0].tolist() == expected


def test_a_higher_threshold_keeps_less_and_is_stored(tmp_path: Path) -> None:
    model, batch = tiny_gated_model().eval(), tiny_batch(8)
    before = model.run(**batch)
    model.set_gate_threshold(0.3)
    after = model.run(**batch)
    kept = [sum(float(layer.neurons.sum()) for layer in said.gates) for said in (before, after)]
    assert kept[1] < kept[0]
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path).eval()
    torch.testing.assert_close(again.run(**batch).logits[-1], after.logits[-1])
    with pytest.raises(OfframpError, match="has no gates"):
        tiny_model().set_gate_threshold(1.0)


def test_noise_decides_in_training_and_its_gradient_is_the_soft_gates() -> None:
    made, logit = units([0.3]).train(), torch.tensor([[0.3]], requires_grad=True)
    made.logits = lambda seen: logit  # type: ignore[method-assign]
    for u, expected in ((0.5, 1.0), (0.4, 0.0), (0.999, 1.0)):
        made.uniform = lambda like, u=u: torch.full_like(like, u)
        logit.grad = None
        gate = made(torch.zeros(1, 4))
        gate.sum().backward()
        soft = torch.sigmoid(0.3 + torch.logit(torch.tensor(u)))
        assert float(gate.detach()) == pytest.approx(expected)
        assert float(logit.grad) == pytest.approx(float(soft * (1 - soft)), rel=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_open_gates_are_no_gates(family: str) -> None:
    torch.manual_seed(0)
    model, batch = tiny_model(family), tiny_batch()
    before = model(**batch).exit_logits
    model.add_gates(GATES)
    assert any(not torch.equal(one, other) for one, other in zip(before, model(**batch).exit_logits, strict=True))
    model.gates.set_mode("open")
    output = model(**batch)
    assert output.gates is None
    for one, other in zip(before, output.exit_logits, strict=True):
        assert torch.equal(one, other)


def padded(batch: dict[str, Tensor], more: int) -> dict[str, Tensor]:
    return {name: torch.nn.functional.pad(tensor, (0, more)) for name, tensor in batch.items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_changes_no_gate_but_with_the_published_mean(family: str) -> None:
    batch = tiny_batch(8, tokens=10)
    for settings, same in ((GATES, True), (replace(GATES, first_input="padded_mean"), False)):
        seen = []
        for inputs in (batch, padded(batch, 6)):
            model = tiny_gated_model(family, settings)
            hidden = model.backbone.embed(inputs["input_ids"])
            seen.append(model.gates.head_input(0, hidden, inputs["attention_mask"]))
        assert torch.allclose(*seen, atol=1e-6) == same
    model = tiny_gated_model(family)
    for one, other in zip(model.run(**batch).gates, model.run(**padded(batch, 6)).gates, strict=True):
        assert torch.equal(one.heads, other.heads)
        assert torch.equal(one.neurons, other.neurons)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_at_a_time_and_stored_against_live(family: str) -> None:
    model, batch = tiny_gated_model(family), tiny_batch(8)
    trace = torch.stack(model(**batch).exit_logits)
    policy = Entropy(0.5)
    answer = model.answer(policy, **batch)
    assert len(answer.exit.unique()) > 1
    assert answer.exit.tolist() == first_exit(policy, trace).tolist()
    for row in range(8):
        alone = model.answer(policy, **rows_of(batch, torch.tensor([row])))
        torch.testing.assert_close(alone.logits[0], answer.logits[row], rtol=1e-4, atol=1e-5)
        assert alone.exit.tolist() == [answer.exit[row]]


def test_training_on_one_row() -> None:
    model = tiny_gated_model().train()
    before = {name: buffer.clone() for name, buffer in model.gates.named_buffers() if "running" in name}
    model(**tiny_batch(1, labels=3)).loss.backward()
    gradients = [p.grad for n, p in model.gates.named_parameters() if n.endswith("3.weight")]
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    for name, buffer in model.gates.named_buffers():
        if "running" in name:
            assert torch.equal(buffer, before[name])


def test_modes_in_training() -> None:
    """`sample` draws and gathers statistics, `decide` does neither."""
    batch = tiny_batch(8)
    for mode, moves in (("sample", True), ("decide", False)):
        model = without_dropout(tiny_gated_model())
        model.gates.set_mode(mode)
        model.train()
        before = {name: buffer.clone() for name, buffer in model.gates.named_buffers()}
        kept = [torch.cat([layer.neurons for layer in model.run(**batch).gates], 1) for _ in range(2)]
        assert torch.equal(*kept) == (not moves)
        moved = [name for name, buffer in model.gates.named_buffers() if not torch.equal(buffer, before[name])]
        assert bool(moved) == moves


def test_a_mode_does_not_forget_that_the_model_trains() -> None:
    model = tiny_gated_model().train()
    for mode in ("decide", "open", "sample"):
        model.gates.set_mode(mode)
        assert model.gates.training == (mode == "sample")
    model.eval()
    model.gates.set_mode("decide")
    model.gates.set_mode("sample")
    assert not model.gates.training


def test_where_skipping_is_left_to_masks() -> None:
    """It knows neither gradients nor autocast; and weights that were laid out anew can still be trained."""
    model, batch = tiny_gated_model(), tiny_batch(4, labels=3)
    expected = model(**batch)
    with torch.inference_mode():
        model.skipping = Skipping(model)
        skipped = model(**batch)
        with torch.autocast("cpu", torch.bfloat16):
            assert bool(model(**batch).logits.isfinite().all())
    torch.testing.assert_close(skipped.logits, expected.logits, rtol=1e-4, atol=1e-5)
    model(**batch).loss.backward()
    assert model.backbone.parts(0).summed.weight.grad is not None
    model.train()(**batch).loss.backward()
    model.eval().add_gates(GATES)
    assert model.skipping is None


def test_what_hugging_face_code_walks_through() -> None:
    """Plain tuples: it makes new ones of the same kind from a generator."""
    for kept in tiny_gated_model()(**tiny_batch()).gates:
        assert type(kept) is tuple


@pytest.mark.parametrize("settings", [GATES, GateSettings(0.25, neurons="topk", block=8, width=16)], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_saved_and_opened(family: str, settings: GateSettings, tmp_path: Path) -> None:
    model, batch = tiny_gated_model(family, settings), tiny_batch()
    model.save_pretrained(tmp_path)
    expected = model(**batch)
    for again in (AutoModelForSequenceClassification.from_pretrained(tmp_path), offramp.load(tmp_path)):
        assert again.gates.settings == settings
        assert torch.equal(again(**batch).logits, expected.logits)
    encoder = AutoModel.from_pretrained(tmp_path)
    hidden = model(**batch, output_hidden_states=True).hidden_states[-1]
    torch.testing.assert_close(encoder(**batch).last_hidden_state, hidden)


def test_cut_to_fewer_layers(tmp_path: Path) -> None:
    model, batch = tiny_gated_model(), tiny_batch()
    model.save_pretrained(tmp_path)
    cut = offramp.load(tmp_path, layers=2)
    for one, other in zip(cut(**batch).exit_logits, model(**batch).exit_logits, strict=False):
        torch.testing.assert_close(one, other)
    assert len(cut.gates.layers) == 2


@pytest.mark.parametrize("gates", [{"sparsity": 0.4, "wide": 3}, {"sparsity": 0.4, "folded": [{"head": 1}]}], ids=str)
def test_gates_in_a_configuration_that_nobody_knows(gates: dict[str, Any]) -> None:
    with pytest.raises(OfframpError, match=r"gates in config\.json"):
        MultiExitConfig(backbone_config=BertConfig(**SHAPE, num_hidden_layers=2), gates=gates)


def test_a_configuration_may_leave_out_what_is_usual() -> None:
    config = MultiExitConfig(backbone_config=BertConfig(**SHAPE, num_hidden_layers=2), gates={"sparsity": 0.4})
    config.keep(layers=1)
    assert config.gate_settings == GATES


def model_of(config: Any) -> MultiExitModel:
    return MultiExitForSequenceClassification(MultiExitConfig(backbone_config=config))


@pytest.mark.parametrize(
    ("config", "settings", "message"),
    [
        (BertConfig(**SHAPE, num_hidden_layers=2), {"block": 7}, "7 does not divide the 24 neurons"),
        (BertConfig(**SHAPE, num_hidden_layers=2, hidden_act="sigmoid"), {}, "an activation with f(0) = 0"),
        (AlbertConfig(**SHAPE, num_hidden_layers=2, inner_group_num=2), {}, "gates work on one"),
    ],
)
def test_backbones_that_gates_do_not_fit(config: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OfframpError, match=message.replace("(", r"\(").replace(")", r"\)")):
        model_of(config).add_gates(replace(GATES, **settings))


@pytest.mark.parametrize(
    "wrong",
    [
        {"sparsity": 1.0},
        {"sparsity": -0.1},
        {"heads": "random"},
        {"neurons": "all"},
        {"block": 0},
        {"temperature": 0.0},
        {"first_input": "last"},
    ],
    ids=str,
)
def test_bad_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(OfframpError, match="gates"):
        GateSettings(**({"sparsity": 0.4} | wrong))
