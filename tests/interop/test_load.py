"""Opening what others wrote: the same numbers, whoever wrote it and in whatever file."""

from __future__ import annotations

import copy
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import offramp
from offramp.backbones import ElasticBertConfig, from_pretrained
from tests.tiny import SHAPE, rows_of, tiny_backbone, tiny_batch, tiny_model

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
ORIGINALS = (
    "deebert_bert",
    "deebert_roberta",
    "romebert_sd",
    "elasticbert_dynamic",
    "elasticbert_regression",
    "elbert_c2",
    "ebert_bert_cls",
    "ebert_bert_qa",
    "ebert_roberta_cls",
)


def rewrite(
    source: Path, target: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]], **config: Any
) -> Path:
    """A checkpoint folder with other weights or settings."""
    target.mkdir()
    settings = json.loads((source / "config.json").read_text()) | config
    (target / "config.json").write_text(json.dumps(settings))
    save_file(change(load_file(source / "model.safetensors")), target / "model.safetensors")
    return target


def same_weights(left: nn.Module, right: nn.Module) -> bool:
    ours, theirs = left.state_dict(), right.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.fixture(autouse=True)
def _nothing_goes_unused(caplog: pytest.LogCaptureFixture) -> Any:
    """Weights that were not understood are warned of: no checkpoint of these tests may have any."""
    yield
    said = [record.getMessage() for record in caplog.get_records("call")]  # `text` has nothing of it left by now
    assert not [message for message in said if "weights not used" in message]


@pytest.mark.parametrize("name", ORIGINALS)
def test_pytorch_bin_is_safetensors(name: str, tmp_path: Path) -> None:
    shutil.copy(GOLDEN / name / "config.json", tmp_path)
    torch.save(load_file(GOLDEN / name / "model.safetensors"), tmp_path / "pytorch_model.bin")
    (tmp_path / "training_args.bin").write_bytes(b"a pickle that must not be opened")
    assert same_weights(offramp.load(tmp_path), offramp.load(GOLDEN / name))


def test_safetensors_are_preferred(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN / "deebert_bert" / name, tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"not opened where there is something safer")
    assert same_weights(offramp.load(tmp_path), offramp.load(GOLDEN / "deebert_bert"))


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_shards(suffix: str, tmp_path: Path) -> None:
    tensors = load_file(GOLDEN / "deebert_bert" / "model.safetensors")
    names = sorted(tensors)
    base = "model" if suffix == "safetensors" else "pytorch_model"
    save = save_file if suffix == "safetensors" else torch.save
    weight_map = {}
    for part in range(3):
        file = f"{base}-{part + 1:05}-of-00003.{suffix}"
        save({name: tensors[name] for name in names[part::3]}, tmp_path / file)
        weight_map |= dict.fromkeys(names[part::3], file)
    (tmp_path / f"{base}.{suffix}.index.json").write_text(json.dumps({"weight_map": weight_map}))
    shutil.copy(GOLDEN / "deebert_bert" / "config.json", tmp_path)
    assert same_weights(offramp.load(tmp_path), offramp.load(GOLDEN / "deebert_bert"))


def test_old_names_of_norms(tmp_path: Path) -> None:
    def old(name: str) -> str:
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    folder = rewrite(GOLDEN / "deebert_bert", tmp_path / "old", lambda tensors: {old(n): t for n, t in tensors.items()})
    assert same_weights(offramp.load(folder), offramp.load(GOLDEN / "deebert_bert"))


def test_untrained_highway_is_dropped_unless_wanted() -> None:
    corrected, legacy = (offramp.load(GOLDEN / "deebert_bert", legacy_last_exit=keep) for keep in (False, True))
    assert corrected.exits.layers == (1, 2, 3, 4)
    assert legacy.exits.layers == (1, 2, 3, 4, 4)


def test_elasticbert_with_or_without_prefix_and_pretraining_heads(tmp_path: Path) -> None:
    def as_released(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        bare = {name.removeprefix("elasticbert."): t for name, t in tensors.items() if "classifiers" not in name}
        heads = {
            "predictions.bias": 120,
            "predictions.transforms.0.dense.bias": 32,
            "sop_classifier.classifiers.0.bias": 2,
        }
        return bare | {name: torch.zeros(size) for name, size in heads.items()}

    released = rewrite(
        GOLDEN / "elasticbert_dynamic", tmp_path / "released", as_released, architectures=["ElasticBertForMaskedLM"]
    )
    fine_tuned, fresh = offramp.load(GOLDEN / "elasticbert_dynamic"), offramp.load(released, num_labels=5)
    assert fresh.config.backbone_config.layer_norm_eps == 1e-8
    assert fresh.backbone.model.embeddings.LayerNorm.eps == 1e-8
    for name, tensor in fine_tuned.state_dict().items():
        if "classifiers" not in name:
            assert torch.equal(tensor, fresh.state_dict()[name]), name
    assert fresh.exits.classifiers["0"].weight.shape == (5, 32)
    cut = offramp.load(released, layers=2, exits="last")
    assert torch.equal(cut.exits.poolers["1"].weight, fine_tuned.exits.poolers["1"].weight)
    assert cut.exits.layers == (2,)
    assert same_weights(from_pretrained(released, layers=2), cut.backbone)


@pytest.mark.parametrize("exit_layers", [[2], [1, 2]])
def test_new_exits_of_a_backbone_that_is_cut(exit_layers: list[int], tmp_path: Path) -> None:
    """They are among the layers that are left."""
    transformers.BertModel(transformers.BertConfig(**SHAPE, num_hidden_layers=4)).save_pretrained(tmp_path)
    model = offramp.load(tmp_path, layers=2, exit_layers=exit_layers, classifiers=1, num_labels=3)
    assert (model.backbone.depth, model.exits.layers) == (2, tuple(exit_layers))
    assert same_weights(from_pretrained(tmp_path, layers=2), model.backbone)
    with pytest.raises(offramp.OfframpError, match="the last exit is after layer 1 of 2"):
        offramp.load(tmp_path, layers=2, exit_layers=[1])
    with pytest.raises(offramp.OfframpError, match="cannot keep 9 layers"):
        offramp.load(tmp_path, layers=9, exit_layers=[1, 4])


def test_elasticbert_static_checkpoint(tmp_path: Path) -> None:
    """What the static program saves: k layers, one live pooler, one classifier."""

    def static(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        kept = {n: t for n, t in tensors.items() if not any(f".{i}." in n for i in (2, 3)) and "pooler.0" not in n}
        kept = {n: t for n, t in kept.items() if not n.startswith("classifiers")}
        return kept | {f"classifier.{w}": tensors[f"classifiers.1.{w}"] for w in ("weight", "bias")}

    folder = rewrite(
        GOLDEN / "elasticbert_dynamic", tmp_path / "static", static, num_hidden_layers=2, num_output_layers=1
    )
    model = offramp.load(folder)
    expected = offramp.load(GOLDEN / "elasticbert_dynamic", layers=2, exits="last")
    torch.testing.assert_close(model(**tiny_batch()).logits, expected(**tiny_batch()).logits)


HUGGING_FACE = {
    "bert": "BertForSequenceClassification",
    "roberta": "RobertaForSequenceClassification",
    "albert": "AlbertForSequenceClassification",
}


@pytest.mark.parametrize("family", HUGGING_FACE)
def test_fine_tuned_classifier_becomes_the_last_exit(
    family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tiny_backbone(family)
    config.id2label, config.label2id = {0: "no", 1: "maybe", 2: "yes"}, {"no": 0, "maybe": 1, "yes": 2}
    theirs = getattr(transformers, HUGGING_FACE[family])(config).eval()
    theirs.save_pretrained(tmp_path)
    with caplog.at_level(logging.WARNING, "offramp"):
        model = offramp.load(tmp_path)
    assert "the exits after layers 1, 2, 3 are new: train them before use" in caplog.text
    assert model.config.id2label == {0: "no", 1: "maybe", 2: "yes"}
    torch.testing.assert_close(model(**tiny_batch()).logits, theirs(**tiny_batch()).logits)
    fresh = offramp.load(tmp_path, num_labels=2)
    assert fresh(**tiny_batch()).logits.shape == (6, 2)


def test_several_labels_for_one_text(tmp_path: Path) -> None:
    """Such a classifier must not pass for one that chooses among its labels; its encoder is one like any other."""
    config = tiny_backbone("bert")
    config.problem_type, config.num_labels = "multi_label_classification", 3
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    with pytest.raises(
        offramp.OfframpError, match=r"several labels to one text .*; with num_labels its encoder is loaded"
    ):
        offramp.load(tmp_path)
    model = offramp.load(tmp_path, num_labels=3)
    assert model(**tiny_batch()).logits.shape == (6, 3)
    model.save_pretrained(tmp_path / "ours")
    assert offramp.load(tmp_path / "ours").outputs == 3


@pytest.mark.parametrize("size", [5, 2**31])
def test_chunks_of_a_feed_forward_block_make_no_difference(size: int, tmp_path: Path) -> None:
    theirs = transformers.BertForSequenceClassification(tiny_backbone("bert")).eval()
    expected = theirs(**tiny_batch()).logits
    theirs.config.chunk_size_feed_forward = size
    theirs.save_pretrained(tmp_path)
    torch.testing.assert_close(offramp.load(tmp_path)(**tiny_batch()).logits, expected)


@pytest.mark.parametrize("kind", ["Model", "ForMaskedLM", "ForPreTraining", "ForTokenClassification"])
def test_pretrained_encoder_gets_new_exits_that_start_from_its_pooler(kind: str, tmp_path: Path) -> None:
    theirs = getattr(transformers, f"Bert{kind}")(tiny_backbone("bert")).eval()
    theirs.save_pretrained(tmp_path)
    model = offramp.load(tmp_path, num_labels=4)
    encoder = getattr(theirs, "bert", theirs)
    hidden = encoder(**tiny_batch()).last_hidden_state
    torch.testing.assert_close(model(**tiny_batch(), output_hidden_states=True).hidden_states[-1], hidden)
    assert model(**tiny_batch()).logits.shape == (6, 4)
    if encoder.pooler is not None:
        assert all(torch.equal(p.weight, encoder.pooler.dense.weight) for p in model.exits.poolers.values())


def test_question_answering(tmp_path: Path) -> None:
    theirs = transformers.BertForQuestionAnswering(tiny_backbone("bert")).eval()
    theirs.save_pretrained(tmp_path)
    batch = rows_of(tiny_batch(), torch.tensor([0]))
    ours, expected = offramp.load(tmp_path)(**batch), theirs(**batch)
    torch.testing.assert_close(ours.start_logits, expected.start_logits)
    torch.testing.assert_close(ours.end_logits, expected.end_logits)


def test_own_folder_is_cut_like_any_other(tmp_path: Path) -> None:
    model = tiny_model(layers=4, classifiers=2, poolers=1, pooling=["mean", "max", "first", "first"])
    model.save_pretrained(tmp_path)
    assert same_weights(offramp.load(tmp_path), model)
    trace = model(**tiny_batch()).exit_logits
    cut = offramp.load(tmp_path, layers=3, exits=[1, 3])
    assert cut.exits.layers == (1, 3)
    for ours, theirs in zip(cut(**tiny_batch()).exit_logits, (trace[0], trace[2]), strict=True):
        torch.testing.assert_close(ours, theirs)
    cut.save_pretrained(tmp_path / "cut")
    assert same_weights(offramp.load(tmp_path / "cut"), cut)


def test_learned_loss_weights_belong_to_their_exits(tmp_path: Path) -> None:
    model = tiny_model(learned_loss_weights=True)
    model.save_pretrained(tmp_path)
    assert torch.equal(offramp.load(tmp_path).loss_weights, model.loss_weights)
    assert not hasattr(offramp.load(tmp_path, layers=2), "loss_weights")


def test_released_sizes() -> None:
    """Parameters of ElasticBERT-base as released: 12 poolers; cut to 12 and 6 layers with one."""
    with torch.device("meta"):
        config = offramp.MultiExitConfig(backbone_config=ElasticBertConfig(layer_norm_eps=1e-8))
        sizes = [count_without_classifiers(offramp.MultiExitForSequenceClassification(config))]
        for layers in (12, 6):
            cut = copy.deepcopy(config)
            cut.keep(layers, "last")
            sizes.append(count_without_classifiers(offramp.MultiExitForSequenceClassification(cut)))
    assert sizes == [115_978_752, 109_482_240, 66_955_008]


def count_without_classifiers(model: nn.Module) -> int:
    return sum(p.numel() for name, p in model.named_parameters() if "classifiers" not in name)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("name", ["deebert_bert", "elasticbert_dynamic", "elbert_c2"])
def test_other_labels_or_spans_than_trained_for(name: str, own: bool, tmp_path: Path) -> None:
    folder = GOLDEN / name
    if own:
        offramp.convert(GOLDEN / name, tmp_path / "own")
        folder = tmp_path / "own"
    trained = offramp.load(folder)
    other, span = offramp.load(folder, num_labels=7), offramp.load(folder, span=True)
    assert other(**tiny_batch()).logits.shape == (6, 7)
    assert span(**tiny_batch()).logits.shape == (6, 12, 2)
    for model in (other, span):
        assert same_weights(model.backbone, trained.backbone)
        assert same_weights(model.exits.poolers, trained.exits.poolers)
    assert same_weights(offramp.load(folder, num_labels=trained.config.num_labels), trained)


@pytest.mark.parametrize("name", ["deebert_bert", "elasticbert_dynamic", "elbert_c2", "elbert_opt_heads3_clsmean"])
def test_cutting_any_checkpoint_is_quiet_and_right(name: str, caplog: pytest.LogCaptureFixture) -> None:
    whole, cut = offramp.load(GOLDEN / name), offramp.load(GOLDEN / name, layers=2)
    for ours, theirs in zip(cut(**tiny_batch()).exit_logits, whole(**tiny_batch()).exit_logits, strict=False):
        torch.testing.assert_close(ours, theirs)
    assert len(cut.exits) == 2
    assert not caplog.text


def test_elbert_with_a_pooler_of_its_own(tmp_path: Path) -> None:
    def own_pooler(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        head = "albert.encoder.exit_out_layer"
        narrow = {f"{head}.pooler.{w}": tensors[f"albert.pooler.{w}"][:20].clone() for w in ("weight", "bias")}
        return tensors | narrow | {f"{head}.classifier.weight": tensors[f"{head}.classifier.weight"][:, :20].clone()}

    folder = rewrite(
        GOLDEN / "elbert_c2", tmp_path / "own", own_pooler, use_out_pooler=False, fc_size1=20, pooler_input="mean-max"
    )
    model = offramp.load(folder)
    hidden = model(**tiny_batch(), output_hidden_states=True).hidden_states[3]
    pooled = torch.tanh(model.exits.poolers["0"](hidden.mean(1) + hidden.amax(1)))
    torch.testing.assert_close(model.exits.classifiers["0"](pooled), model(**tiny_batch()).exit_logits[2])


@pytest.mark.parametrize("saved", [torch.float16, torch.bfloat16, torch.float64])
def test_half_precision_is_opened_in_single(saved: torch.dtype, tmp_path: Path) -> None:
    tiny_model().to(saved).save_pretrained(tmp_path)
    model = offramp.load(tmp_path)
    assert {parameter.dtype for parameter in model.parameters()} == {
        max(saved, torch.float32, key=lambda t: t.itemsize)
    }


def test_hub_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A released ElasticBERT by its hub name, from a local cache in the hub's own layout."""
    snapshot = tmp_path / "models--fnlp--elasticbert-base" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (tmp_path / "models--fnlp--elasticbert-base" / "refs").mkdir()
    (tmp_path / "models--fnlp--elasticbert-base" / "refs" / "main").write_text("0" * 40)
    shutil.copy(GOLDEN / "elasticbert_dynamic" / "config.json", snapshot)
    torch.save(load_file(GOLDEN / "elasticbert_dynamic" / "model.safetensors"), snapshot / "pytorch_model.bin")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert same_weights(offramp.load("fnlp/elasticbert-base"), offramp.load(GOLDEN / "elasticbert_dynamic"))
    with pytest.raises(offramp.OfframpError, match="no folder fnlp/missing, and the hub gives no model of that name"):
        offramp.load("fnlp/missing")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(offramp.OfframpError, match=r"no folder smal, .*did you mean small\?$"):
        offramp.load("smal")
    with pytest.raises(offramp.OfframpError, match="file is a file: expected the folder of a model"):
        offramp.load("file")


def test_exit_options_for_new_exits(tmp_path: Path) -> None:
    transformers.BertModel(transformers.BertConfig(**SHAPE, num_hidden_layers=4)).save_pretrained(tmp_path)
    model = offramp.load(tmp_path, num_labels=1, pooling="mean", classifiers=1, exit_layers=[2, 4])
    assert (model.exits.layers, model.exits.pooling_of, model.exits.classifier_of) == ((2, 4), (("mean",),) * 2, (0, 0))
    assert model.objective.name == "regression"
    assert offramp.load(tmp_path, pooler_size=7).exits.poolers["0"].weight.shape == (7, 16)
    assert offramp.load(tmp_path, exit_layers=[1, 2, 3, 4, 4]).exits.layers == (1, 2, 3, 4, 4)


def test_ebert_says_how_its_gates_decide(tmp_path: Path) -> None:
    settings = {"head_mask_mode": "gumbel", "ffn_mask_mode": "topk", "sparsity_target": 0.3}
    folder = rewrite(GOLDEN / "ebert_bert_cls", tmp_path / "mixed", lambda tensors: tensors, **settings)
    gates = offramp.load(folder).gates.settings
    assert (gates.heads, gates.neurons, gates.sparsity, gates.first_input) == ("gumbel", "topk", 0.3, "padded_mean")
