"""Everybody who is timed gives the reference's answers, and who does not is found out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from offramp.bench.checking import FAR, check_answers, reference
from offramp.bench.contestants import Contestant, Offramp, Said, own_pair
from offramp.bench.plain_model import EncoderAndExit, Logits, plain_model
from offramp.bench.rivals import OnnxRuntime, Transformers, export, make_rivals, quantised
from offramp.bench.workload import SHAPES, made_up_rows, model_of, scripted_exits
from offramp.engine import Engine
from offramp.engine.backends import Setting
from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.policies import Entropy, Fixed, Scripted
from tests.tiny import FAMILIES, tiny_gated_model, tiny_model

CPU = Setting(torch.device("cpu"), "fp32", "torch", threads=1)
ROWS = 7
HEADS: dict[str, dict[str, Any]] = {
    "usual": {},
    "mean": {"pooling": "mean"},
    "mean below": {"pooling": ["mean", "mean", "mean", "first"]},
    "bare": {"poolers": 0},
    "span": {"span": True},
}


def made(family: str = "bert", **options: Any) -> tuple[MultiExitModel, list[Any]]:
    torch.manual_seed(0)
    model = tiny_model(family, **options)
    return model, list(enumerate(made_up_rows(ROWS, model)))


def farthest(contestant: Contestant, model: MultiExitModel, rows: list[Any]) -> float:
    traces = reference(model, rows)
    said = contestant.answers(contestant.prepare(rows))
    assert said.keys() == traces.keys()
    return max(float(np.abs(said[number].logits - trace[-1]).max()) for number, trace in traces.items())


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_gives_our_last_exits_logits(family: str, head: str) -> None:
    model, rows = made(family, **HEADS[head])
    assert isinstance(plain_model(model), Logits if head in ("usual", "mean below") else EncoderAndExit)
    assert farthest(Transformers(model, CPU, sorts=True), model, rows) < 1e-4


@pytest.mark.parametrize("case", ["bert", "roberta", "albert", "span"])
def test_onnx_runtime_gives_our_last_exits_logits(case: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model, rows = made("bert", span=True) if case == "span" else made(case)
    path = export(model, tmp_path)
    assert farthest(OnnxRuntime(model, path, "fp32", 1), model, rows) < 1e-4
    in_int8 = farthest(OnnxRuntime(model, quantised(path), "int8", 1), model, rows)
    assert 1e-4 < in_int8 < 3, "int8 is rougher, and says something like it"


def test_sorted_batches_hold_less_padding_and_the_same_rows() -> None:
    model, rows = made()
    given, ordered = (Transformers(model, CPU, sorts).batches(rows, 2) for sorts in (False, True))
    assert [number for numbered, _ in given for number, _ in numbered] == list(range(ROWS))
    assert sorted(number for numbered, _ in ordered for number, _ in numbered) == list(range(ROWS))
    padded = [sum(inputs["input_ids"].numel() for _, inputs in works) for works in (given, ordered)]
    assert padded[1] < padded[0]


def test_the_engine_at_full_depth_and_under_a_policy() -> None:
    model, rows = made()
    policy = Scripted((1, 2, 3, 4, 4, 1, 2))
    full, exits = own_pair(Engine(model, policy, "cpu", "fp32", "torch"), Fixed(4))
    check_answers(model, [full, exits], rows)
    for one in (full, exits):
        works = [*one.batches(rows, 3), *one.stream(rows)]
        assert [sum(len(batch) for batch in work) for work in works] == [3, 3, 1, ROWS]
        one.finished.clear()
        for work in works:
            one.run(work)
    assert full.mean_layers() == 4
    assert exits.mean_layers() == pytest.approx(17 / 7)


class Wrong(Offramp):
    """Tells something else about one row."""

    def __init__(self, like: Offramp, row: int, said: Said) -> None:
        self.__dict__.update(like.__dict__)
        self.row, self.wrongly = row, said

    def answers(self, work: Any) -> dict[int, Said]:
        return {**super().answers(work), self.row: self.wrongly}


def test_wrong_answers_are_found_before_anything_is_timed() -> None:
    model, rows = made()
    _, exits = own_pair(Engine(model, Scripted((2,) * ROWS), "cpu", "fp32", "torch"), Fixed(4))
    traces = reference(model, rows)
    trace = traces[3]
    check_answers(model, [Wrong(exits, 3, Said(trace[1] + 1e-5, 1))], rows)
    with pytest.raises(OfframpError, match=r"row 3 left by exit 4, and by exit 2 in the reference"):
        check_answers(model, [Wrong(exits, 3, Said(trace[3], 3))], rows)
    far = 1.1 * FAR["fp32"] * max(np.abs(one).max() for one in traces.values())
    for logits in (trace[1] + far, trace[1] * np.nan, trace[1][:2]):
        with pytest.raises(OfframpError, match=r"answers row 3 with .*: nothing was timed"):
            check_answers(model, [Wrong(exits, 3, Said(logits, 1))], rows)


def test_in_lower_precision_a_row_may_leave_elsewhere_with_what_is_said_there() -> None:
    model, rows = made()
    _, exits = own_pair(Engine(model, Entropy(0.5), "cpu", "fp32", "torch"), Fixed(4))
    exits.precision = "int8"
    trace = reference(model, rows)[0]
    for exit in range(4):
        check_answers(model, [Wrong(exits, 0, Said(trace[exit], exit))], rows)
    with pytest.raises(OfframpError, match="answers row 0"):
        check_answers(model, [Wrong(exits, 0, Said(-trace[0], 0))], rows)


def test_what_cannot_be_measured_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = made()
    monkeypatch.setattr("offramp.bench.rivals.find_spec", lambda name: None)
    rivals, skipped = make_rivals(model, CPU)
    assert [one.name for one in rivals] == ["transformers fp32", "transformers fp32, sorted"]
    assert skipped == {"ONNX Runtime": "onnx is not installed", "OpenVINO": "onnx is not installed"}
    assert make_rivals(tiny_gated_model(), CPU) == ([], {"rivals": "none of them knows gates"})


def test_made_up_rows_are_as_long_as_sentences() -> None:
    model = model_of(SHAPES["tiny"])
    lengths = np.array([len(row) for row in made_up_rows(5000, model)])
    assert lengths.mean() == pytest.approx(26, abs=0.6)
    assert (lengths.min(), lengths.max()) == (4, 128)
    assert made_up_rows(5, model) == made_up_rows(5, model)


@pytest.mark.parametrize(("depth", "mean"), [(12, 5.1), (24, 10.1), (4, 1.8)])
def test_scripted_exits_save_more_than_half(depth: int, mean: float) -> None:
    script: Any = scripted_exits(20_000, depth)
    assert np.mean(script.layers) == pytest.approx(mean, abs=0.1)
    assert (min(script.layers), max(script.layers)) == (1, depth)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_what_their_names_say(name: str) -> None:
    config = SHAPES[name].config()
    assert config.hidden_size % config.num_attention_heads == 0
    with torch.device("meta"):
        weights = sum(parameter.numel() for parameter in model_of(SHAPES[name]).backbone.parameters())
    millions = {"bert-base": 109, "bert-large": 334, "roberta-base": 124, "albert-base": 11, "minilm": 22, "tiny": 5}
    assert weights / 1e6 == pytest.approx(millions[name], rel=0.1)
