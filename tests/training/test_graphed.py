"""Micro-batches as CUDA graphs: the gradients are those of passes that are launched piece by piece.

Where there is no GPU a stand-in takes the place of the graphs: it computes, and like a graph it leaves its gradients
where those of the last pass lie.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import TrainingArguments

from offramp.errors import OfframpError
from offramp.models import GateSettings, MultiExitModel
from offramp.recipes import DeeBERT, ElasticBERT, Forward, Recipe, RomeBERT, Schedule
from offramp.tasks.encoding import Row
from offramp.training.graphed import GraphedPasses, NotCapturable, NoWaiting, Passed
from offramp.training.graphed_phase import GraphedPhase, padded_length, sees_padding
from offramp.training.phase_gradients import PhaseGradients
from offramp.training.trainer import PhaseTrainer
from tests.recipes.matrix import MATRIX
from tests.tiny import VOCABULARY, span_batch, tiny_batch, tiny_gated_model, tiny_model, without_dropout

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]
SHARE = 0.5

every_recipe = pytest.mark.parametrize("recipe", MATRIX.values(), ids=MATRIX.keys())
on_each_device = pytest.mark.parametrize("device", DEVICES)


class StandIn(GraphedPasses):
    """Computes where graphs would be replayed."""

    def __call__(self, key: Any, batch: Any, compute: Any) -> Passed:
        losses, gradients = compute(dict(batch))
        self._make_room(gradients)
        kept = [self._keep(held, found) for held, found in zip(self.gradients, gradients, strict=True)]
        return Passed(losses, kept)


def use_graphs(graphs: GraphedPhase, device: str) -> GraphedPhase:
    if device == "cpu":
        graphs.passes = StandIn(torch.device(device))
        graphs.works = True
    return graphs


def graphed(gradients: PhaseGradients, device: str) -> GraphedPhase:
    return use_graphs(GraphedPhase(gradients, torch.device(device), nullcontext), device)


def on(device: str, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: values.to(device) for name, values in batch.items()}


def batches_of(number: int = 3, rows: int = 6) -> list[dict[str, Tensor]]:
    return [tiny_batch(rows, labels=3, seed=seed) for seed in range(number)]


def add_eagerly(gradients: PhaseGradients, batch: dict[str, Tensor], device: str) -> Tensor:
    losses = gradients.losses(on(device, batch), SHARE)
    gradients.add_gradients(losses)
    return torch.stack(losses).detach().sum()


def copied(gradients: PhaseGradients) -> list[dict[str, Tensor]]:
    return [{name: values.clone() for name, values in sums.items()} for sums in gradients.held()]


def start_again(gradients: PhaseGradients) -> None:
    gradients.clear()
    gradients.by_loss = []


def assert_same(left: list[dict[str, Tensor]], right: list[dict[str, Tensor]]) -> None:
    assert [sums.keys() for sums in left] == [sums.keys() for sums in right]
    for ours, theirs in zip(left, right, strict=True):
        for name, values in ours.items():
            torch.testing.assert_close(
                values, theirs[name], rtol=1e-3, atol=1e-5, msg=lambda text, n=name: f"{n} {text}"
            )


def phases_of(recipe: Recipe, model: MultiExitModel) -> Iterator[PhaseGradients]:
    recipe.prepare(model)
    for phase in recipe.phases(model):
        with PhaseGradients(model, phase) as gradients:
            model.train()
            yield gradients


@on_each_device
@every_recipe
def test_the_gradients_are_those_without_graphs(recipe: Recipe, device: str) -> None:
    """Of each phase: at the capture, at a replay with other rows, and with the same noise where gates sample."""
    model = without_dropout(tiny_model()).to(device)
    for gradients in phases_of(recipe, model):
        buffers = copy.deepcopy(dict(model.named_buffers()))
        found: list[list[Any]] = []
        for add in (graphed(gradients, device).add, lambda b, _, g=gradients: add_eagerly(g, b, device)):
            model.load_state_dict(buffers, strict=False)
            torch.manual_seed(1)
            seen: list[Any] = []
            for batch in batches_of():
                loss = add(batch, SHARE)
                assert loss is not None
                seen.append((loss, copied(gradients)))
                start_again(gradients)
            found.append([*seen, {name: values.clone() for name, values in model.named_buffers()}])
        *ours, own_buffers = found[0]
        *theirs, their_buffers = found[1]
        for (loss, sums), (wanted, wanted_sums) in zip(ours, theirs, strict=True):
            torch.testing.assert_close(loss, wanted, rtol=1e-4, atol=1e-5)
            assert_same(sums, wanted_sums)
        assert_same([own_buffers], [their_buffers])


@on_each_device
@pytest.mark.parametrize("head", [{"num_labels": 1}, {"span": True, "poolers": 0}, {"exit_layers": [2, 4]}], ids=str)
@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_other_backbones_and_heads(family: str, head: dict[str, Any], device: str) -> None:
    model = without_dropout(tiny_model(family, **head)).to(device)
    batch = span_batch() if "span" in head else tiny_batch(labels=head.get("num_labels", 3))
    for gradients in phases_of(ElasticBERT(), model):
        assert graphed(gradients, device).add(batch, SHARE) is not None
        found = copied(gradients)
        start_again(gradients)
        add_eagerly(gradients, batch, device)
        assert_same(found, copied(gradients))


@on_each_device
@pytest.mark.parametrize("order", ["ggg", "gge", "egg", "geg"])
@pytest.mark.parametrize("recipe", [ElasticBERT(), RomeBERT(), DeeBERT(clip_sees_frozen=True)], ids=lambda r: r.name)
def test_accumulating(recipe: Recipe, order: str, device: str) -> None:
    """Also where some micro-batches of a step are (g)raphs and others (e)ager; and the step after is a new one."""
    model = without_dropout(tiny_model()).to(device)
    for gradients in phases_of(recipe, model):
        graphs, sums = graphed(gradients, device), []
        for kinds in (order, order, "eee"):
            start_again(gradients)
            for kind, batch in zip(kinds, batches_of(), strict=True):
                if kind == "g":
                    assert graphs.add(batch, SHARE) is not None
                else:
                    add_eagerly(gradients, batch, device)
            sums.append(copied(gradients))
        assert_same(sums[0], sums[2])
        assert_same(sums[1], sums[2])


@needs_gpu
def test_shapes_in_any_order() -> None:
    """All graphs share their memory."""
    model = without_dropout(tiny_model()).cuda()
    shapes = [(6, 12), (6, 30), (4, 12), (6, 12), (4, 12), (6, 30), (6, 12)]
    for gradients in phases_of(RomeBERT(), model):
        graphs = graphed(gradients, "cuda")
        for seed, (rows, tokens) in enumerate(shapes):
            batch = tiny_batch(rows, tokens, labels=3, seed=seed)
            graphs.add(batch, SHARE)
            found = copied(gradients)
            start_again(gradients)
            add_eagerly(gradients, batch, "cuda")
            assert_same(found, copied(gradients))
            start_again(gradients)
        assert len(graphs.passes.captured) == 3


@needs_gpu
def test_dropout_differs_from_replay_to_replay() -> None:
    model = tiny_model().cuda()
    [batch] = batches_of(1)
    for gradients in phases_of(ElasticBERT(), model):
        graphs = graphed(gradients, "cuda")
        losses = {float(graphs.add(batch, SHARE)) for _ in range(8)}  # type: ignore[arg-type]
        assert len(losses) == 8


@needs_gpu
def test_dropout_is_that_without_graphs() -> None:
    """The passes before a capture take nothing from the random numbers: a run that goes on takes the same steps."""
    model = tiny_model().cuda()
    for gradients in phases_of(ElasticBERT(), model):
        graphs, losses = graphed(gradients, "cuda"), []
        for add in (graphs.add, lambda batch, _, g=gradients: add_eagerly(g, batch, "cuda")):
            torch.manual_seed(3)
            losses.append(torch.stack([add(batch, SHARE) for batch in batches_of()]))  # type: ignore[misc]
            start_again(gradients)
        torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)


def reads_a_number(forward: Forward) -> Tensor:
    loss = forward.loss(-1)
    return loss * min(float(loss.detach()), 1.0)


def waits(forward: Forward) -> Tensor:
    """No operation of torch's: only CUDA itself notices."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return forward.loss(-1)


@needs_gpu
@pytest.mark.parametrize("loss", [reads_a_number, waits])
def test_what_cannot_be_captured_is_computed_as_ever(loss: Any, caplog: pytest.LogCaptureFixture) -> None:
    """And nothing is broken by the attempt: random numbers and memory are as before, and others can be captured."""
    model = tiny_model().cuda()
    for phase in (replace(ElasticBERT().phases(model)[0], losses=(loss,)), *ElasticBERT().phases(model)):
        with PhaseGradients(model, phase) as gradients, caplog.at_level(logging.WARNING):
            model.train()
            graphs = graphed(gradients, "cuda")
            for batch in batches_of():
                if not graphs.works or graphs.add(batch, SHARE) is None:
                    add_eagerly(gradients, batch, "cuda")
            torch.cuda.empty_cache()
            assert all(bool(values.isfinite().all()) for values in gradients.held()[0].values())
            assert graphs.works == (phase.losses != (loss,))
    assert [record.message.partition(":")[0] for record in caplog.records] == ["joint"]


class Fails(StandIn):
    """Breaks at one of its passes."""

    def __init__(self, good: int) -> None:
        super().__init__(torch.device("cpu"))
        self.good = good

    def __call__(self, key: Any, batch: Any, compute: Any) -> Passed:
        self.good -= 1
        if self.good < 0:
            raise NotCapturable("no graph today")
        return super().__call__(key, batch, compute)


@pytest.mark.parametrize("good", [0, 1, 2])
@pytest.mark.parametrize("recipe", [ElasticBERT(), RomeBERT()], ids=lambda r: r.name)
def test_falling_back_in_the_middle_of_a_step(recipe: Recipe, good: int, caplog: pytest.LogCaptureFixture) -> None:
    model = without_dropout(tiny_model())
    for gradients in phases_of(recipe, model):
        graphs, sums = graphed(gradients, "cpu"), []
        graphs.passes = Fails(good)
        for batch in batches_of():
            if not graphs.works or graphs.add(batch, SHARE) is None:
                add_eagerly(gradients, batch, "cpu")
        sums.append(copied(gradients))
        start_again(gradients)
        for batch in batches_of():
            add_eagerly(gradients, batch, "cpu")
        assert_same(sums[0], copied(gradients))
    assert len(caplog.records) == 1
    assert "no graph today" in caplog.text


def test_a_wrong_batch_is_refused_as_ever() -> None:
    batch = tiny_batch(labels=3)
    batch["input_ids"][0, 0] = VOCABULARY
    for gradients in phases_of(ElasticBERT(), tiny_model()):
        with pytest.raises(OfframpError, match="outside the vocabulary"):
            graphed(gradients, "cpu").add(batch, SHARE)


@every_recipe
def test_recipes_read_nothing_on_the_host(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the look at the batch, and at whether it has padding: both know when a graph is captured."""
    model = tiny_model()
    for gradients in phases_of(recipe, model):
        with monkeypatch.context() as patch, NoWaiting():
            patch.setattr(torch.compiler, "is_compiling", lambda: True)
            gradients.gradients_of(gradients.losses(tiny_batch(labels=3)))


@pytest.mark.parametrize(
    "read",
    [float, torch.nonzero, lambda x: x[x > 0], lambda x: x.masked_select(x > 0), lambda x: bool((x > 0).all())],
)
def test_reading_on_the_host_is_noticed(read: Any) -> None:
    with NoWaiting(), pytest.raises(NotCapturable, match="waits for the GPU"):
        read(torch.ones(1))


def test_indexing_by_numbers_is_not_reading() -> None:
    with NoWaiting():
        assert torch.arange(4)[torch.tensor([2, 1])].shape == (2,)


@given(st.integers(1, 512), st.integers(8, 512))
def test_lengths_are_few_and_fit(longest: int, most: int) -> None:
    longest = min(longest, most)
    length = padded_length(longest, most)
    assert longest <= length <= most
    assert length - longest < (16 if longest <= 128 else 32)
    assert length == most or length % (16 if longest <= 128 else 32) == 0


def test_rows_that_see_their_padding_keep_their_length() -> None:
    assert not sees_padding(tiny_model())
    assert sees_padding(tiny_model(pooling="mean", pool_padding=True))
    assert not sees_padding(tiny_gated_model())
    assert sees_padding(tiny_gated_model(settings=GateSettings(sparsity=0.4, first_input="padded_mean")))


ROWS = [Row(torch.randint(4, VOCABULARY, (2 + n % 20,)).tolist()) for n in range(70)]
LABELS = [len(row) % 3 for row in ROWS]


def trained(recipe: Recipe, folder: Path, device: str, graphs: bool, accumulate: int, **options: Any) -> Any:
    """The weights after some epochs of the Trainer, and the rows of every micro-batch that came as a graph."""
    torch.manual_seed(0)
    model = without_dropout(tiny_model())
    recipe.prepare(model)
    phase = replace(recipe.phases(model)[0], schedule=Schedule(learning_rate=1e-3, epochs=2, batch_size=16))
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=16 // accumulate,
        gradient_accumulation_steps=accumulate,
        use_cpu=device == "cpu",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_nan_inf_filter=False,
        remove_unused_columns=False,
        **options,
    )
    encoder: Any = SimpleNamespace(tokenizer=SimpleNamespace(pad_token_id=0), max_length=40)
    with PhaseGradients(model, phase) as gradients:
        trainer = PhaseTrainer(model, gradients, arguments, ROWS, LABELS, encoder, None, [])
        rows: list[int] = []
        if graphs:
            trainer.graphs.passes = Counting(use_graphs(trainer.graphs, device).passes, rows)  # type: ignore[assignment]
        trainer.graphs.works = graphs
        trainer.train()
    return {name: weight.cpu() for name, weight in model.state_dict().items()}, rows


class Counting:
    """Writes down what comes as a graph."""

    def __init__(self, passes: GraphedPasses, rows: list[int]) -> None:
        self.passes, self.rows = passes, rows

    def __call__(self, key: Any, batch: Any, compute: Any) -> Passed:
        self.rows.append(len(batch["input_ids"]))
        return self.passes(key, batch, compute)

    def forget(self) -> None:
        self.passes.forget()


PRECISIONS = [("cpu", False), *(pytest.param("cuda", bf16, marks=needs_gpu) for bf16 in (False, True))]


@pytest.mark.parametrize(("device", "bf16"), PRECISIONS)
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("recipe", ["elasticbert", "romebert", "elbert"])
def test_the_trainer_takes_the_same_steps(
    recipe: str, accumulate: int, device: str, bf16: bool, tmp_path: Path
) -> None:
    """70 rows, 16 a step: the last step of an epoch has 6, and comes without a graph."""
    ours, rows = trained(MATRIX[recipe], tmp_path, device, True, accumulate, bf16=bf16)
    theirs, none = trained(MATRIX[recipe], tmp_path, device, False, accumulate, bf16=bf16)
    assert rows == [16 // accumulate] * (2 * 4 * accumulate)
    assert none == []
    for name, weight in ours.items():
        if not name.endswith("key.bias"):  # its gradient is rounding noise, which Adam scales up
            tolerance = 2e-2 if bf16 else 1e-3
            torch.testing.assert_close(weight, theirs[name], rtol=tolerance, atol=tolerance)
