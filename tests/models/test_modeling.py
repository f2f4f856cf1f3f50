"""The multi-exit model: exits of every kind, and Hugging Face's conventions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    BertTokenizer,
    PreTrainedModel,
    Trainer,
    TrainingArguments,
    pipeline,
)

from offramp import MultiExitConfig, OfframpError
from offramp.models import MultiExitForQuestionAnswering, MultiExitForSequenceClassification
from offramp.models.modeling import MultiExitEncoder
from offramp.policies import Fixed
from tests.tiny import FAMILIES, VOCABULARY, rows_of, span_batch, tiny_backbone, tiny_batch, tiny_model, without_dropout

SHAPES: dict[str, dict[str, Any]] = {
    "own": {},
    "one head for all": {"poolers": 1, "classifiers": 1},
    "a head for each half": {"poolers": 2, "classifiers": 2},
    "own classifier, shared pooler": {"poolers": 1},
    "no pooler": {"poolers": 0},
    "narrow pooler": {"pooler_size": 7},
    "mean": {"pooling": "mean"},
    "max": {"pooling": "max"},
    "first and mean": {"pooling": "first+mean"},
    "each its own": {"pooling": ["mean", "max+first", "mean", "first"]},
    "exits on some layers": {"exit_layers": [2, 4]},
    "two exits on the last layer": {"exit_layers": [1, 4, 4]},
    "regression": {"num_labels": 1},
    "learned loss weights": {"learned_loss_weights": True},
    "span": {"span": True, "poolers": 0},
    "span with poolers": {"span": True},
}


def logits_of(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        return model(**batch).exit_logits


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_save_and_load_give_the_same_bits(family: str, shape: str, tmp_path: Path) -> None:
    model, batch = tiny_model(family, **SHAPES[shape]), tiny_batch()
    model.save_pretrained(tmp_path)
    modes = {file.name: file.stat().st_mode for file in tmp_path.iterdir()}
    assert modes["model.safetensors"] == modes["config.json"], "a server often is another user"
    auto = AutoModelForQuestionAnswering if "span" in shape else AutoModelForSequenceClassification
    again = auto.from_pretrained(tmp_path)
    assert type(again) is type(model)
    assert (tmp_path / "model.safetensors").is_file()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    for before, after in zip(logits_of(model, batch), logits_of(again, batch), strict=True):
        assert torch.equal(before, after)


@pytest.mark.parametrize("shape", SHAPES)
def test_company_does_not_change_an_answer(shape: str) -> None:
    """Batched and padded, or alone: every exit says the same."""
    model, batch = tiny_model(**SHAPES[shape]), tiny_batch()
    together = logits_of(model, batch)
    for row in range(6):
        single = rows_of(batch, torch.tensor([row]))
        for one, many in zip(logits_of(model, single), together, strict=True):
            kept = many[row, : single["input_ids"].shape[1]] if "span" in shape else many[row]
            torch.testing.assert_close(one[0], kept, rtol=1e-4, atol=1e-5)


def test_output() -> None:
    model, batch = tiny_model(num_labels=3), tiny_batch(labels=3)
    output = model(**batch, output_hidden_states=True)
    assert len(output.exit_logits) == 4
    assert torch.equal(output.logits, output.exit_logits[-1])
    assert [tuple(state.shape) for state in output.hidden_states] == [(6, 12, 16)] * 5
    expected = sum(F.cross_entropy(logits, batch["labels"]) for logits in output.exit_logits)
    torch.testing.assert_close(output.loss, expected)
    assert model(**tiny_batch()).hidden_states is None
    assert torch.equal(model(**tiny_batch(), return_dict=False)[0], output.logits)
    model.config.output_hidden_states = True
    assert len(model(**tiny_batch()).hidden_states) == 5


def test_only_the_wanted_exits_and_layers_are_computed() -> None:
    model = tiny_model()
    calls: list[int] = []
    for index in range(4):
        model.backbone.layer_module(index).register_forward_hook(lambda *_, i=index: calls.append(i))
    full, some = logits_of(model, tiny_batch()), model(**tiny_batch(), exits=[0, 1]).exit_logits
    assert calls == [0, 1, 2, 3, 0, 1]
    assert all(torch.equal(a, b) for a, b in zip(some, full[:2], strict=True))


def test_shared_heads_are_shared() -> None:
    model = tiny_model(poolers=1, classifiers=2)
    assert len(model.exits.poolers) == 1
    assert model.exits.classifier_of == (0, 0, 1, 1)


@pytest.mark.parametrize(("pooling", "expected"), [("mean", "mean"), ("max", "amax")])
def test_pooling_leaves_padding_out_unless_told(pooling: str, expected: str) -> None:
    hidden, mask = torch.randn(2, 5, 16), torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    pooled = tiny_model(pooling=pooling).exits.pool(0, hidden, mask)
    torch.testing.assert_close(pooled[0], getattr(hidden[0, :3], expected)(0))
    padded = tiny_model(pooling=pooling, pool_padding=True).exits.pool(0, hidden, mask)
    torch.testing.assert_close(padded[0], getattr(hidden[0], expected)(0))


def test_left_padding_pools_the_first_real_token() -> None:
    hidden, mask = torch.randn(2, 5, 16), torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]])
    pooled = tiny_model().exits.pool(0, hidden, mask)
    assert torch.equal(pooled, torch.stack([hidden[0, 2], hidden[1, 0]]))


def test_exits_have_dropout_only_while_training() -> None:
    model, batch = without_dropout(tiny_model()), tiny_batch()
    model.exits.dropout.p = 0.5
    assert torch.equal(model(**batch).logits, model(**batch).logits)
    model.train()
    assert not torch.equal(model(**batch).logits, model(**batch).logits)
    assert torch.equal(*(model.answer(Fixed(2), **batch).logits for _ in range(2)))
    assert model.training


@pytest.mark.parametrize(
    ("family", "settings", "expected"),
    [
        ("bert", {"hidden_dropout_prob": 0.3}, 0.3),
        ("bert", {"hidden_dropout_prob": 0.3, "classifier_dropout": 0.2}, 0.2),
        ("albert", {"hidden_dropout_prob": 0.0, "classifier_dropout_prob": 0.25}, 0.25),
    ],
)
def test_exit_dropout_is_the_classifier_dropout_of_the_backbone(
    family: str, settings: dict[str, float], expected: float
) -> None:
    backbone = type(tiny_backbone(family))(**{**tiny_backbone(family).to_dict(), **settings})
    config = MultiExitConfig(backbone_config=backbone)
    assert MultiExitForSequenceClassification(config).exits.dropout.p == expected


def test_exits_may_be_asked_for_in_any_order() -> None:
    model, batch = tiny_model(), tiny_batch()
    full = model(**batch).exit_logits
    some = model(**batch, exits=[2, 0]).exit_logits
    assert torch.equal(some[0], full[0])
    assert torch.equal(some[1], full[2])


@pytest.mark.parametrize("exits", [[], [-1, 0], [4]])
def test_exits_that_are_not_there_are_refused(exits: list[int]) -> None:
    with pytest.raises(OfframpError, match=r"name some of the exits, 0 to 3"):
        tiny_model().run(**tiny_batch(), exits=exits)


def test_padding_cannot_be_part_of_a_span() -> None:
    batch = tiny_batch()
    padding = batch["attention_mask"] == 0
    for logits in tiny_model(span=True)(**batch).exit_logits:
        assert bool((logits[padding] == torch.finfo(torch.float32).min).all())
        assert bool((logits[~padding].abs() < 100).all())


def test_trainer_sees_the_last_exit_and_accumulates_rightly(tmp_path: Path) -> None:
    rows = tiny_batch(12, labels=3)
    data = [{name: tensor[i] for name, tensor in rows.items()} for i in range(12)]
    norms = []
    for size, times in ((12, 1), (4, 3)):
        torch.manual_seed(0)
        settings = TrainingArguments(
            str(tmp_path / str(size)),
            max_steps=1,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=times,
            logging_steps=1,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            save_strategy="no",
        )
        trainer = Trainer(without_dropout(tiny_model()), settings, train_dataset=data)
        trainer.train()
        norms.append(next(float(line["grad_norm"]) for line in trainer.state.log_history if "grad_norm" in line))
    assert norms[1] == pytest.approx(norms[0], rel=1e-3)
    assert trainer.predict(data).predictions.shape == (12, 3)


def test_regression_and_span_losses() -> None:
    regression, batch = tiny_model(num_labels=1), tiny_batch(labels=1)
    output = regression(**batch)
    expected = sum(((logits[:, 0] - batch["labels"]) ** 2).mean() for logits in output.exit_logits)
    torch.testing.assert_close(output.loss, expected)

    span, batch = tiny_model(span=True, poolers=0), span_batch()
    output = span(**batch)
    start, end = (
        sum(F.cross_entropy(logits[:, :, k], batch[name]) for logits in output.exit_logits)
        for k, name in enumerate(("start_positions", "end_positions"))
    )
    torch.testing.assert_close(output.loss, (start + end) / 2)
    assert torch.equal(output.start_logits, output.logits[..., 0])
    column = tiny_batch(labels=1)
    column["labels"] = column["labels"].unsqueeze(1)
    torch.testing.assert_close(regression(**column).loss, regression(**tiny_batch(labels=1)).loss)
    outside = {**batch, "start_positions": torch.full((6,), 99), "end_positions": torch.full((6,), -1)}
    assert span(**outside).loss.item() == 0.0


def test_a_model_moves_between_precisions_and_trains_with_checkpointing() -> None:
    model = tiny_model().train()
    model.gradient_checkpointing_enable()
    model(**tiny_batch(labels=3)).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert model.bfloat16()(**tiny_batch()).logits.dtype == torch.bfloat16


def test_the_vocabulary_can_grow() -> None:
    model = tiny_model()
    model.resize_token_embeddings(VOCABULARY + 3)
    assert model.config.vocab_size == VOCABULARY + 3
    assert model(input_ids=torch.tensor([[VOCABULARY + 2, 5]])).logits.shape == (1, 3)


def test_encoder_alone(tmp_path: Path) -> None:
    model, batch = tiny_model(), tiny_batch()
    model.save_pretrained(tmp_path)
    encoder = AutoModel.from_pretrained(tmp_path)
    expected = model(**batch, output_hidden_states=True).hidden_states[-1]
    assert torch.equal(encoder(**batch).last_hidden_state, expected)


def test_pipeline(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "fine", "film", "dull"]
    (tmp_path / "vocab.txt").write_text("\n".join(words + [f"w{i}" for i in range(VOCABULARY - len(words))]))
    tokenizer = BertTokenizer.from_pretrained(tmp_path)
    model = tiny_model(num_labels=2, id2label={0: "bad", 1: "good"}, label2id={"bad": 0, "good": 1})
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    texts = ["a fine film", "dull", "a dull film a fine film"]
    answers = pipeline("text-classification", model=str(tmp_path / "model"))(texts, batch_size=3)
    with torch.no_grad():
        expected = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits.softmax(-1)
    for answer, probabilities in zip(answers, expected, strict=True):
        assert answer["label"] == ["bad", "good"][int(probabilities.argmax())]
        assert answer["score"] == pytest.approx(float(probabilities.max()), rel=1e-5)


BAD_CONFIGURATIONS: dict[str, tuple[dict[str, Any], str]] = {
    "more exits than layers": ({"exit_layers": [1, 2, 3, 4, 5]}, "more exits than layers"),
    "no exit": ({"exit_layers": []}, "at least one exit"),
    "last layer without exit": ({"exit_layers": [1, 2]}, "add 4 to exit_layers, or load with layers=2"),
    "layer 0": ({"exit_layers": [0, 4]}, "start at 1"),
    "descending": ({"exit_layers": [3, 1, 4]}, "ascending"),
    "unknown pooling": ({"pooling": "middle"}, "use first, mean, max"),
    "unknown pooling of one": ({"pooling": ["mean", "first", "middle", "max"]}, "'middle': use first, mean, max"),
    "poolings for other exits": ({"pooling": ["mean", "first"]}, "pooling names 2 exits, but the model has 4"),
    "more heads than exits": ({"classifiers": 9}, "9 classifiers for 4 exits"),
    "poolers for other exits": ({"poolers": [0, 1]}, "names 2 exits, but the model has 4"),
    "width without poolers": ({"poolers": 0, "pooler_size": 8}, "needs poolers"),
    "no classifier": ({"classifiers": 0}, "an exit needs a classifier"),
    "no backbone": ({"backbone_config": None}, "must be a Hugging Face configuration"),
}


@pytest.mark.parametrize("wrong", BAD_CONFIGURATIONS)
def test_bad_configurations_are_refused(wrong: str) -> None:
    options, message = BAD_CONFIGURATIONS[wrong]
    with pytest.raises(OfframpError, match=message) as caught:
        MultiExitConfig(**{"backbone_config": tiny_backbone("bert"), **options})
    assert "\n" not in str(caught.value)


BAD_BATCHES: dict[str, tuple[dict[str, torch.Tensor], str]] = {
    "no rows": ({"input_ids": torch.zeros(0, 5, dtype=torch.long)}, "the batch is empty: 0 rows of 5 tokens"),
    "no tokens": ({"input_ids": torch.zeros(2, 0, dtype=torch.long)}, "the batch is empty: 2 rows of 0 tokens"),
    "one row without a batch": ({"input_ids": torch.zeros(5, dtype=torch.long)}, r"\(batch, tokens\)"),
    "all padding": (
        {"input_ids": torch.ones(2, 3, dtype=torch.long), "attention_mask": torch.tensor([[1, 1, 0], [0, 0, 0]])},
        "row 1 of the batch is all padding",
    ),
    "foreign token": ({"input_ids": torch.tensor([[3, 50]])}, "token id 50 is outside the vocabulary of 50"),
    "negative token": ({"input_ids": torch.tensor([[3, -1]])}, "token id -1"),
    "too long": ({"input_ids": torch.ones(1, 41, dtype=torch.long)}, "41 tokens, but the backbone takes 40"),
    "foreign token type": (
        {"input_ids": torch.ones(1, 2, dtype=torch.long), "token_type_ids": torch.tensor([[0, 2]])},
        "token type 2 is outside the token types of 2",
    ),
    "mask of another shape": (
        {"input_ids": torch.ones(2, 3, dtype=torch.long), "attention_mask": torch.ones(2, 4, dtype=torch.long)},
        "they must have the same shape",
    ),
}


@pytest.mark.parametrize("wrong", BAD_BATCHES)
def test_bad_batches_are_refused(wrong: str) -> None:
    batch, message = BAD_BATCHES[wrong]
    with pytest.raises(OfframpError, match=message):
        tiny_model("bert")(**batch)


@pytest.mark.parametrize("kind", [MultiExitForSequenceClassification, MultiExitForQuestionAnswering, MultiExitEncoder])
@pytest.mark.parametrize("name", ["position_ids", "inputs_embeds", "head_mask", "output_attentions"])
def test_what_cannot_be_honoured_is_refused(name: str, kind: type[PreTrainedModel]) -> None:
    model = kind(MultiExitConfig(backbone_config=tiny_backbone("bert"), num_labels=3))
    with pytest.raises(OfframpError, match=f"{name} is not supported"):
        model(**tiny_batch(), **{name: torch.ones(6, 12)})


def test_half_a_span_is_refused() -> None:
    with pytest.raises(OfframpError, match="both start_positions and end_positions"):
        tiny_model(span=True)(**tiny_batch(), start_positions=torch.zeros(6, dtype=torch.long))


def test_classes_stand_on_their_own() -> None:
    config = MultiExitConfig(backbone_config=tiny_backbone("bert").to_dict(), num_labels=1)
    assert MultiExitForSequenceClassification(config).objective.name == "regression"
    assert MultiExitForQuestionAnswering(config).objective.name == "span"
