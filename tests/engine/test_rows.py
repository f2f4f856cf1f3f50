"""The engine's answers are the model's own, for every backbone, policy and kind of task, in any company."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp import OfframpError
from offramp.engine import Engine, RowAnswer, processor
from offramp.models import MultiExitModel
from offramp.models.gate_settings import GateSettings
from offramp.policies import Policy, Scripted, first_exit
from offramp.policies.base import REGISTRY
from offramp.tasks.encoding import Row
from tests.exiting_models import BATCH, MODELS, TRACES
from tests.policies.matrix import MATRIX, SAMPLES
from tests.tiny import FAMILIES, tiny_batch, tiny_gated_model, tiny_model

BACKENDS = ("torch", "onnx")
BY_LAYERS = "onnx, by layers"
"""As large models are run there: these are so small that a row's whole way is one call."""


def rows_in(batch: dict[str, torch.Tensor]) -> list[Row]:
    return [
        Row(ids[marks.bool()].tolist()) for ids, marks in zip(batch["input_ids"], batch["attention_mask"], strict=True)
    ]


ROWS = rows_in(BATCH)


@cache
def engine_for(name: str, family: str, backend: str, precision: str = "fp32") -> Engine:
    row = MATRIX[name]
    engine = Engine(MODELS[family, row.task], row.policy, "cpu", precision, backend.split(",")[0], threads=2)
    if backend == BY_LAYERS:
        engine.runner.most_whole = 0  # type: ignore[attr-defined]
    return engine


def in_company(engine: Engine, data: st.DataObject) -> tuple[list[int], list[RowAnswer]]:
    """Some of the rows, in any order, batches and windows: their numbers, and what the engine answers."""
    order: list[int] = data.draw(st.permutations(range(SAMPLES)))
    picked = order[: data.draw(st.integers(1, SAMPLES))]
    engine.window = data.draw(st.integers(1, SAMPLES))
    engine.size = type(engine.size)(data.draw(st.sampled_from([8, 40, 4096])), data.draw(st.integers(1, SAMPLES)))
    return picked, answers_to(engine, [ROWS[number] for number in picked])


def answers_to(engine: Engine, rows: Sequence[Row]) -> list[RowAnswer]:
    return list(engine.answer_rows(rows))


@pytest.mark.parametrize("backend", [*BACKENDS, BY_LAYERS])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", [name for name, row in MATRIX.items() if not isinstance(row.policy, Scripted)])
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_the_models_own_answers_in_any_company(name: str, family: str, backend: str, data: st.DataObject) -> None:
    row, trace = MATRIX[name], TRACES[family, MATRIX[name].task]
    expected = first_exit(row.policy, trace, task=row.task)
    picked, answers = in_company(engine_for(name, family, backend), data)
    assert [answer.exit for answer in answers] == expected[picked].tolist()
    for number, answer in zip(picked, answers, strict=True):
        assert answer.exit_layer == expected[number] + 1
        stored = trace[expected[number], number]
        stored = stored[: len(ROWS[number])] if row.task == "span" else stored
        np.testing.assert_allclose(answer.logits, stored, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["entropy", "patience", "stable", "patience, regression", "entropy, span"])
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_int8_knows_no_company(name: str, family: str, data: st.DataObject) -> None:
    """In int8 a row has scales of its own: the same numbers alone and among others, but for the rounding of exits."""
    engine = engine_for(name, family, "onnx", "int8")
    alone = alone_in_int8(name, family)
    for number, answer in zip(*in_company(engine, data), strict=True):
        assert answer.exit == alone[number].exit
        np.testing.assert_allclose(answer.logits, alone[number].logits, rtol=1e-5, atol=1e-5)


@cache
def alone_in_int8(name: str, family: str) -> list[RowAnswer]:
    engine = engine_for(name, family, "onnx", "int8")
    return [answers_to(engine, [row])[0] for row in ROWS]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("bert", {"pooling": "mean"}),
        ("bert", {"pooling": "max", "poolers": 0}),
        ("roberta", {"pooling": "first+mean", "poolers": 1, "classifiers": 2}),
        ("albert", {"pooling": ["mean", "max+first", "mean", "first"]}),
        ("albert", {"poolers": 1, "classifiers": 1}),
        ("bert", {"exit_layers": [2, 4]}),
        ("bert", {"exit_layers": [1, 4, 4]}),
        ("elasticbert", {"pooler_size": 12}),
        ("bert", {"poolers": 1, "classifiers": 1, "pooling": ["first", "mean", "max", "first"]}),
        ("bert", {"span": True, "poolers": 1}),
    ],
    ids=str,
)
def test_every_head(family: str, options: dict[str, Any], backend: str) -> None:
    torch.manual_seed(4)
    model = tiny_model(family, **options)
    policy = "patience(1)" if options.get("span") else "entropy(0.6131)"
    check_against_model(model, policy, backend)


@pytest.mark.parametrize("options", [{"pooling": "mean"}, {"span": True}], ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_pooling_over_padding_is_over_none(backend: str, options: dict[str, Any]) -> None:
    """Where the original lets padding count, the answer is that of a row without padding."""
    torch.manual_seed(2)
    model = tiny_model(pool_padding=True, **options)
    check_against_model(model, "patience(1)", backend)


def check_against_model(model: MultiExitModel, policy: str, backend: str, count: int = 24) -> None:
    engine = Engine(model, policy, "cpu", "fp32", backend, threads=1)
    rows = rows_in(tiny_batch(count, 14, seed=5))
    answers = answers_to(engine, rows)
    for row, answer in zip(rows, answers, strict=True):
        alone = model.answer(engine.policy, torch.tensor([row.input_ids]))
        assert answer.exit == int(alone.exit)
        np.testing.assert_allclose(answer.logits, alone.logits[0], rtol=1e-4, atol=1e-4)
    assert len({answer.exit for answer in answers}) > 1


@pytest.mark.parametrize("family", FAMILIES)
def test_gates_are_obeyed(family: str) -> None:
    """More rows than there are slots: layers with one set of weights still have gates of their own."""
    check_against_model(tiny_gated_model(family, layers=5), "entropy(0.6131)", "torch", count=100)


def test_gates_that_look_at_padding_see_none() -> None:
    """EBERT's own first gates take the mean over the padding, too: a row is answered as if it were alone."""
    gates = GateSettings(0.6, first_input="padded_mean")
    check_against_model(tiny_gated_model("bert", gates), "entropy(0.6131)", "torch", count=60)


def test_a_row_of_one_token_changes_no_weights() -> None:
    model = tiny_gated_model("bert")
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    engine = Engine(model, "fixed(4)", "cpu")
    first, second = (answers_to(engine, [Row([7])])[0].logits for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())


def test_spans_in_bf16_know_no_company() -> None:
    if not processor.works("bf16"):
        pytest.skip("this processor has no bf16")
    torch.manual_seed(3)
    engine = Engine(tiny_model(span=True), "entropy(0.7, normalised=True)", "cpu", "bf16", "torch")
    rows = rows_in(tiny_batch(40, 14, seed=5))
    together = answers_to(engine, rows)
    assert [answer.exit for answer in together] == [answers_to(engine, [row])[0].exit for row in rows]
    assert len({answer.exit for answer in together}) > 1


@pytest.fixture
def never_the_last() -> Iterator[Policy]:
    """A policy of one's own that does not look at the last exit."""

    @dataclass(frozen=True)
    class NeverTheLast(Policy):
        layer: int

        def asks(self, exit: int, exit_layers: Sequence[int]) -> bool:
            return exit_layers[exit] == self.layer

        def step(self, layer: int, logits: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
            assert layer == self.layer, "asked though it did not want to be"
            return logits[:, 1] > 0, state

    yield NeverTheLast(2)
    del REGISTRY[NeverTheLast.name]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_last_exit_takes_whoever_is_left(backend: str, never_the_last: Policy) -> None:
    model = MODELS["bert", "classification"]
    answers = answers_to(Engine(model, never_the_last, "cpu", "fp32", backend), ROWS)
    assert {answer.exit_layer for answer in answers} == {2, 5}
    for row, answer in zip(ROWS, answers, strict=True):
        alone = model.answer(never_the_last, torch.tensor([row.input_ids]))
        assert int(alone.exit_layer) == answer.exit_layer
        np.testing.assert_allclose(answer.logits, alone.logits[0], rtol=1e-4, atol=1e-4)


def test_graphs_of_a_model_that_is_kept_in_bf16() -> None:
    """Two exits after one layer: the second is not in the graph, and computes as the graph does."""
    model = tiny_model("bert", exit_layers=[1, 2, 2, 3, 4])
    expected = answers_to(Engine(model, device="cpu", precision="fp32", backend="onnx", record=True), ROWS[:3])
    halved = tiny_model("bert", exit_layers=[1, 2, 2, 3, 4])
    halved.load_state_dict(model.state_dict())
    halved.to(torch.bfloat16).train()  # type: ignore[call-arg]
    found = answers_to(Engine(halved, device="cpu", precision="fp32", backend="onnx", record=True), ROWS[:3])
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(one.logits, other.logits, rtol=0.1, atol=0.2)


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_bf16_on_a_cpu_knows_no_company(family: str) -> None:
    if not processor.works("bf16"):
        pytest.skip("this processor has no bf16")
    engine = Engine(MODELS[family, "classification"], "entropy(0.4131)", "cpu", "bf16", "torch")
    for row, among_others in zip(ROWS, answers_to(engine, ROWS), strict=True):
        [alone] = answers_to(engine, [row])
        assert alone.exit == among_others.exit
        np.testing.assert_array_equal(alone.logits, among_others.logits)


def test_int8_where_a_token_has_nothing_above_zero() -> None:
    """What GELU leaves of such a token is small, and must not swell to the scale of the others."""
    torch.manual_seed(0)
    model = tiny_model(layers=2)
    with torch.no_grad():
        for index in range(2):
            model.backbone.parts(index).neurons.bias -= 2.0
    rows = rows_in(tiny_batch(60, 14, seed=6))
    exact, rounded = (answers_to(Engine(model, "fixed(2)", "cpu", kind, "onnx"), rows) for kind in ("fp32", "int8"))
    errors = [np.abs(a.logits - b.logits).max() for a, b in zip(exact, rounded, strict=True)]
    assert np.mean(errors) < 0.05 * np.mean([np.abs(a.logits).max() for a in exact])


def test_types_of_some_rows_only() -> None:
    rows = [Row([5, 6]), Row([5, 6, 7], [0, 1, 1]), Row([5, 6, 7, 8])]
    engine = Engine(tiny_model(), "fixed(4)", "cpu", "fp32", "torch")
    together = answers_to(engine, rows)
    for row, answer in zip(rows, together, strict=True):
        np.testing.assert_allclose(answer.logits, answers_to(engine, [row])[0].logits, atol=1e-5)
    other = answers_to(engine, [Row([5, 6, 7])])[0]
    assert np.abs(other.logits - together[1].logits).max() > 1e-3, "types make no difference: nothing is tested"


@pytest.mark.parametrize("wrong", [RuntimeError, KeyboardInterrupt, OfframpError])
@pytest.mark.parametrize("where", ["layer", "exit"])
@pytest.mark.parametrize("family", ["bert", "albert"])
def test_after_an_error_the_engine_is_as_new(
    family: str, where: str, wrong: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error itself comes out, and no row of the broken stream turns up in the next."""
    engine = Engine(MODELS[family, "classification"], "entropy(0.4131)", "cpu", "fp32", "torch")
    rows = [ROWS[number % SAMPLES] for number in range(200)]
    expected = [answer.exit for answer in engine.answer_rows(rows)]
    real, calls = getattr(engine.runner.layers, where), []

    def failing(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise wrong("broken")
        return real(*arguments)

    for source in (rows, iter(rows)):
        calls.clear()
        with monkeypatch.context() as patch:
            patch.setattr(engine.runner.layers, where, failing)
            with pytest.raises(wrong, match="broken"):
                list(engine.answer_rows(source))
        assert [answer.exit for answer in engine.answer_rows(iter(rows[7:]))] == expected[7:]


def test_a_stream_that_is_given_up_leaves_nothing_behind() -> None:
    engine = Engine(MODELS["albert", "classification"], "entropy(0.4131)", "cpu", "fp32", "torch")
    rows = [ROWS[number % SAMPLES] for number in range(300)]
    engine.window = 16
    stream = engine.answer_rows(iter(rows))
    next(stream)
    with pytest.raises(OfframpError, match="answering already"):
        next(engine.answer_rows(rows))
    stream.close()
    assert len(list(engine.answer_rows(rows[:5]))) == 5


def test_a_model_that_trains_on_is_asked_without_dropout() -> None:
    model = tiny_model()
    engine = Engine(model, "fixed(4)", "cpu", "fp32", "torch")
    before = answers_to(engine, ROWS)
    model.train()
    for one, other in zip(before, answers_to(engine, ROWS), strict=True):
        np.testing.assert_array_equal(one.logits, other.logits)
    assert model.training


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_scripts_follow_the_order_of_the_rows(family: str, backend: str) -> None:
    """Row number s leaves after layer script[s], in streams of any window, refilled slots and all."""
    script = tuple(int(layer) for layer in np.random.default_rng(0).integers(1, 6, 150))
    engine = Engine(MODELS[family, "classification"], Scripted(script), "cpu", "fp32", backend, threads=2)
    engine.window = 32
    rows = [ROWS[number % SAMPLES] for number in range(len(script))]
    assert tuple(answer.exit_layer for answer in engine.answer_rows(iter(rows))) == script
    assert tuple(answer.exit_layer for answer in engine.answer_rows(rows)) == script


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("task", ["classification", "regression", "span"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_recording_engine_tells_every_exit(family: str, task: str, backend: str) -> None:
    model = MODELS[family, task]
    engine = Engine(model, "fixed(5)", "cpu", "fp32", backend, record=True)
    for number, answer in enumerate(engine.answer_rows(ROWS)):
        assert answer.exit == 4
        trace = TRACES[family, task][:, number]
        trace = trace[:, : len(ROWS[number])] if task == "span" else trace
        np.testing.assert_allclose(answer.logits, trace, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("backend", "precision"), [("torch", "fp32"), ("onnx", "fp32"), ("onnx", "int8")])
def test_a_poisonous_row_fails_alone(backend: str, precision: str) -> None:
    torch.manual_seed(0)
    model = tiny_model()
    with torch.no_grad():
        model.backbone.model.embeddings.word_embeddings.weight[7] = torch.nan
    engine = Engine(model, "entropy(0.6131)", "cpu", precision, backend)
    good = [Row([4, 5, 6, 9]), Row([4, 11, 6, 9]), Row([4, 5, 6])]
    poison = {
        "not a number": Row([4, 7, 6, 9]),
        "is empty": Row([]),
        "41 tokens, but the backbone takes 40": Row([5] * 41),
        "outside the vocabulary": Row([4, 5000]),
        "token_type_ids must be": Row([4, 5], [0, 9]),
        "expected a Row of whole numbers, not None": None,
        "expected a Row of whole numbers, not Row(input_ids=['a'": Row(["a"]),  # type: ignore[list-item]
        "expected a Row of whole numbers, not Row(input_ids=[1.5": Row([1.5]),  # type: ignore[list-item]
        "expected a Row of whole numbers, not Row(input_ids=array": Row(np.array([4, 5])),  # type: ignore[arg-type]
    }
    expected = answers_to(engine, good)
    for message, row in poison.items():
        mixed = answers_to(engine, [good[0], row, *good[1:]])  # type: ignore[list-item]
        assert message in str(mixed.pop(1).error)
        for one, other in zip(mixed, expected, strict=True):
            assert one.exit == other.exit
            np.testing.assert_allclose(one.logits, other.logits, atol=1e-5)
