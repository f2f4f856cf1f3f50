"""A backbone walked layer by layer is the Hugging Face encoder it wraps."""

from __future__ import annotations

import pytest
import torch
from transformers import AlbertConfig, AutoConfig, DistilBertConfig

from offramp import OfframpError
from offramp.backbones import Backbone, from_config
from tests.tiny import FAMILIES, SHAPE, rows_of, tiny_backbone, tiny_batch


def walk(backbone: Backbone, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    hidden = backbone.embed(batch["input_ids"])
    mask = backbone.mask(batch["attention_mask"], hidden)
    states = [hidden]
    for index in range(backbone.depth):
        states.append(backbone.layer(index, states[-1], mask))
    return states


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", FAMILIES)
def test_equals_hugging_face(family: str, attention: str) -> None:
    config = tiny_backbone(family)
    config._attn_implementation = attention
    backbone = from_config(config).eval()
    batch = tiny_batch()
    expected = backbone.model(**batch, output_hidden_states=True).hidden_states
    states = walk(backbone, batch)
    real = batch["attention_mask"].bool()
    assert len(states) == backbone.depth + 1
    for ours, theirs in zip(states[1:], expected[1:], strict=True):  # ALBERT's first is before its projection
        torch.testing.assert_close(ours[real], theirs[real])


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_changes_nothing(family: str) -> None:
    backbone, batch = from_config(tiny_backbone(family)).eval(), tiny_batch()
    together = walk(backbone, batch)[-1]
    for row in range(len(batch["input_ids"])):
        alone = rows_of(batch, torch.tensor([row]))
        torch.testing.assert_close(walk(backbone, alone)[-1][0], together[row, : alone["input_ids"].shape[1]])


@pytest.mark.parametrize("family", FAMILIES)
def test_truncated_is_the_first_layers(family: str) -> None:
    config, batch = tiny_backbone(family, layers=4), tiny_batch()
    whole = from_config(config).eval()
    cut = from_config(type(whole).truncated(config, 2)).eval()
    cut.load_state_dict({k: v for k, v in whole.state_dict().items() if k in cut.state_dict()})
    assert cut.depth == 2
    torch.testing.assert_close(walk(cut, batch)[-1], walk(whole, batch)[2])


def test_albert_is_one_layer_applied_again_and_again() -> None:
    backbone = from_config(tiny_backbone("albert", layers=5))
    assert len({id(backbone.layer_module(i)) for i in range(5)}) == 1


@pytest.mark.parametrize(("layers", "groups"), [(5, 3), (18, 14)])  # 9 / (18 / 14) is a little less than 7
def test_albert_layers_are_of_the_groups_hugging_face_takes(layers: int, groups: int) -> None:
    shape = {**SHAPE, "num_hidden_layers": layers, "num_hidden_groups": groups, "embedding_size": 8}
    backbone, batch = from_config(AlbertConfig(**shape)).eval(), tiny_batch()
    with torch.no_grad():
        expected = backbone.model(**batch).last_hidden_state
    torch.testing.assert_close(walk(backbone, batch)[-1], expected)


def test_albert_groups_are_cut_only_between_groups() -> None:
    shape = {**SHAPE, "num_hidden_layers": 6, "num_hidden_groups": 3, "embedding_size": 8}
    backbone = from_config(AlbertConfig(**shape))
    assert [[backbone.layer_module(j) for j in range(6)].index(backbone.layer_module(i)) for i in range(6)] == [
        0, 0, 2, 2, 4, 4,
    ]  # fmt: skip
    cut = type(backbone).truncated(backbone.config, 4)
    assert (cut.num_hidden_layers, cut.num_hidden_groups) == (4, 2)
    with pytest.raises(OfframpError, match="between groups"):
        type(backbone).truncated(backbone.config, 3)


def test_matrices_below_last_layer() -> None:
    names = {name for name, _ in from_config(tiny_backbone("bert", layers=3)).matrices_below_last_layer()}
    assert len(names) == 2 * 6  # Q, K, V, O and two of the FFN in each of two layers
    assert not [name for name in names if ".layer.2." in name or "bias" in name or "LayerNorm" in name]
    assert len(list(from_config(tiny_backbone("albert")).matrices_below_last_layer())) == 6


def test_longest_input() -> None:
    """RoBERTa's positions begin after its padding's."""
    longest = {family: from_config(tiny_backbone(family)).max_length for family in ("bert", "roberta")}
    assert longest == {"bert": 40, "roberta": 38}


def test_elasticbert_configuration_is_known_to_hugging_face() -> None:
    config = AutoConfig.for_model("elasticbert", num_output_layers=3)
    assert (config.model_type, config.num_output_layers) == ("elasticbert", 3)


def test_unknown_family_is_refused() -> None:
    with pytest.raises(OfframpError, match="'distilbert' is not supported; use one of albert, bert"):
        from_config(DistilBertConfig())
