"""The trace of spans: what is computed from it is what a live run, SQuAD's metric and the answers themselves say."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import offramp
from offramp import OfframpError
from offramp.evaluation import SpanTrace, Trace, TraceBase, collect_spans, evaluate, exit_logits
from offramp.models import MultiExitModel
from offramp.policies import REGISTRY, Entropy, Fixed, Scripted
from offramp.tasks.squad import Questions, Window, WindowEncoder, find_answers, squad_scores, window_encoder
from offramp.tasks.squad.metric import normalise
from tests.evaluation.made_questions import made_questions, squad_file
from tests.evaluation.made_traces import random_trace
from tests.prediction.models import model_folder
from tests.tiny import FAMILIES, tiny_model

TASK = dataclasses.replace(offramp.task("squad", dev=__file__), name="made/up")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> WindowEncoder:
    folder = model_folder(tmp_path_factory.mktemp("models") / "span", span=True)
    return dataclasses.replace(window_encoder(offramp.load(folder)), token_types=False, max_length=32)


@dataclasses.dataclass(frozen=True)
class Made:
    model: MultiExitModel
    questions: Questions
    windows: list[Window]
    trace: SpanTrace

    def answers(self, exits: Any) -> dict[str, str]:
        """What each window's exit says, merged by `find_answers`."""
        ends = self.trace.lengths.cumsum()
        picked = [
            self.trace.logits[exit, end - length : end]
            for exit, end, length in zip(exits, ends, self.trace.lengths, strict=True)
        ]
        return {answer.id: answer.text for answer in find_answers(self.questions, self.windows, picked)}


def made(encoder: WindowEncoder, folder: Path, family: str = "bert", batch_size: int = 5, **how: Any) -> Made:
    torch.manual_seed(5)
    model, questions = tiny_model(family, span=True), made_questions(folder, **how)
    windows = encoder(questions)
    trace = collect_spans(model, TASK, questions, windows, encoder, batch_size=batch_size)
    return Made(model, questions, windows, trace)


@pytest.mark.parametrize("family", FAMILIES)
def test_offline_is_live(encoder: WindowEncoder, tmp_path: Path, family: str) -> None:
    """Every policy, at a sample of its candidates: the same exits and the same logits as the model itself."""
    case = made(encoder, tmp_path, family, questions=20)
    trace, tried = case.trace, 0
    batch = encoder.pad([window.row for window in case.windows])
    for rule in REGISTRY.values():
        if "span" not in rule.tasks:
            continue
        for policy in rule.candidates(trace.tensor, trace.exit_layers, "span")[::3]:
            live, exits = case.model.answer(policy, **batch), trace.exits(policy)
            assert live.exit.tolist() == exits.tolist(), policy
            stored = trace.tensor[exits, range(len(trace))]
            torch.testing.assert_close(live.logits, stored, atol=1e-4, rtol=1e-4)
            tried += 1
    assert tried >= 10
    script = Scripted(tuple(np.random.default_rng(0).integers(1, 5, len(trace)).tolist()))
    assert (trace.exits(script) + 1).tolist() == list(script.layers), "a window keeps its number"


@pytest.mark.parametrize("family", FAMILIES)
def test_batched_is_one_at_a_time_in_the_order_given(encoder: WindowEncoder, tmp_path: Path, family: str) -> None:
    case = made(encoder, tmp_path, family)
    lengths = case.trace.lengths
    assert len(lengths) > len(case.questions), "some contexts take more than one window"
    assert case.trace.logits.shape == (4, lengths.sum(), 2)
    for window, end in zip(case.windows, lengths.cumsum(), strict=True):
        alone = exit_logits(case.model, [window.row], encoder)
        np.testing.assert_allclose(case.trace.logits[:, end - len(window.row) : end], alone, atol=1e-4)


@pytest.mark.parametrize("version2", [True, False])
def test_any_choice_of_exits_scores_what_its_answers_score(
    encoder: WindowEncoder, tmp_path: Path, version2: bool
) -> None:
    case = made(encoder, tmp_path, version2=version2, questions=30)
    trace, draw = case.trace, np.random.default_rng(1)
    full_depth = case.answers(trace.all_at(3))
    several = [trace.all_at(exit) for exit in range(4)] + [draw.integers(0, 4, len(trace)) for _ in range(8)]
    agreements = set()
    for exits in several:
        answers = case.answers(exits)
        expected = squad_scores(answers, case.questions)
        assert trace.scores_at(exits) == pytest.approx({"f1": expected["f1"], "exact": expected["exact"]})
        same = [normalise(answers[id]) == normalise(text) for id, text in full_depth.items()]
        assert trace.agreement_at(exits) == pytest.approx(np.mean(same))
        agreements.add(trace.agreement_at(exits))
    assert len(agreements) > 3
    assert trace.agreement_at(trace.all_at(3)) == 1.0
    if version2:
        assert "" in full_depth.values()


def test_a_point_counts_windows_and_scores_questions(encoder: WindowEncoder, tmp_path: Path) -> None:
    trace = made(encoder, tmp_path).trace
    point = trace.sweep(Entropy).points[5]
    layers = trace.exits(point.policy) + 1
    assert len(set(layers)) > 1
    assert point.mean_layers == layers.mean()
    assert point.exits == {layer: int((layers == layer).sum()) for layer in (1, 2, 3, 4)}
    counted = [2e-6 * trace.shape.elue_macs(int(n), int(k), int(k)) for n, k in zip(trace.lengths, layers, strict=True)]
    assert point.mflops == pytest.approx(np.mean(counted))
    assert trace.point(Fixed(4)).scores == trace.scores()[-1].scores


def test_results(encoder: WindowEncoder, tmp_path: Path) -> None:
    trace = made(encoder, tmp_path).trace
    results = trace.results("confidence(0.3)", published=True)
    assert [sweep.name for sweep in results.sweeps] == ["confidence", "entropy", "fixed", "patience"]
    assert (results.rows, results.settings["windows"]) == (12, len(trace))
    assert results.metrics == ["f1", "exact"]
    assert results.full_depth.agreement == 1.0
    for sweep in results.sweeps:
        assert sweep.area is not None
        assert all(sum(point.exits.values()) == len(trace) for point in sweep.points)
    entropy = trace.sweep("entropy").points
    assert (entropy[0].cost, entropy[-1].cost) == (0.25, 1.0)
    with pytest.raises(OfframpError, match="window makes no sense for span: use entropy"):
        trace.point("window(2)")


@pytest.mark.parametrize("version2", [True, False])
@pytest.mark.parametrize("labelled", [True, False])
def test_save_and_load(encoder: WindowEncoder, tmp_path: Path, labelled: bool, version2: bool) -> None:
    trace = made(encoder, tmp_path, labelled=labelled, version2=version2).trace
    path = trace.save(tmp_path / "trace.npz")
    again = TraceBase.load(path)
    assert isinstance(again, SpanTrace)
    for field in dataclasses.fields(SpanTrace):
        ours, theirs = getattr(trace, field.name), getattr(again, field.name)
        assert np.array_equal(ours, theirs) if isinstance(ours, np.ndarray) else ours == theirs, field.name
    assert again.results() == trace.results()
    with pytest.raises(OfframpError, match=r"is no trace of offramp evaluate \(it is of span: expected classification"):
        Trace.load(path)
    assert isinstance(TraceBase.load(random_trace().save(path)), Trace)
    with pytest.raises(OfframpError, match="it is of classification: expected span"):
        SpanTrace.load(path)


def test_without_answers(encoder: WindowEncoder, tmp_path: Path) -> None:
    results = made(encoder, tmp_path, labelled=False).trace.results()
    assert results.full_depth.scores == {}
    assert all(sweep.area is None for sweep in results.sweeps)
    assert results.pareto[-1].agreement == 1.0
    assert results.exits[0].agreement < 1.0


@pytest.mark.parametrize("version2", [False, True])
def test_some_questions_of_a_trace(encoder: WindowEncoder, tmp_path: Path, version2: bool) -> None:
    trace = made(encoder, tmp_path, version2=version2).trace
    asked = np.array([4, 1, 6])
    some = trace.take(asked)
    assert some.answers == 3
    exits = np.random.default_rng(0).integers(0, len(trace.exit_layers), len(trace))
    windows = np.concatenate([np.flatnonzero(trace.questions == question) for question in asked])
    for at, at_all in ((some.right_at, trace.right_at), (some.same_at, trace.same_at)):
        np.testing.assert_array_equal(at(exits[windows]), at_all(exits)[asked])
    np.testing.assert_array_equal(some.exits("entropy(0.9)"), trace.exits("entropy(0.9)")[windows])
    layers = np.asarray(trace.exit_layers, float)[exits]
    np.testing.assert_allclose(some.per_answer(layers[windows]), trace.per_answer(layers)[asked])
    assert trace.right_at(exits).mean() == pytest.approx(trace.scores_at(exits)["exact"])


def test_shapes_must_fit(encoder: WindowEncoder, tmp_path: Path) -> None:
    trace = made(encoder, tmp_path).trace
    with pytest.raises(OfframpError, match="needs logits of that shape"):
        dataclasses.replace(trace, logits=trace.logits[:, 1:])
    with pytest.raises(OfframpError, match="numbers of questions for"):
        dataclasses.replace(trace, questions=trace.questions[1:])


def test_evaluate_keeps_the_trace(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model", span=True)
    task = offramp.task("squad", dev=squad_file(tmp_path / "dev.json"))
    trace = evaluate(folder, task)
    assert isinstance(trace, SpanTrace)
    assert evaluate(folder, task).seconds == trace.seconds, "not run again"
    assert evaluate(folder, task, limit=3, out=tmp_path / "out").answers == 3
    squad_file(tmp_path / "dev.json", seed=1)
    assert evaluate(folder, task).fingerprint != trace.fingerprint, "other questions"


def test_models_and_tasks_of_different_kinds(tmp_path: Path) -> None:
    task = offramp.task("squad", dev=squad_file(tmp_path / "dev.json"))
    with pytest.raises(OfframpError, match="the model answers with labels or numbers, but squad asks for spans"):
        evaluate(model_folder(tmp_path / "labels"), task)
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\na film,good\nthe plot,bad\n")
    with pytest.raises(OfframpError, match="the model answers with a span, but rows asks for labels or numbers"):
        evaluate(model_folder(tmp_path / "span", span=True), offramp.task(dev=rows, labels=("good", "bad")))
