"""The two counters against torch's, term by term."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from offramp.evaluation import EbertLayer, ModelShape, elue_macs
from tests.tiny import FAMILIES, VOCABULARY, tiny_model

LENGTH = 11


def counted_by_torch(model: Any) -> int:
    """Operations in products of matrices, two for each multiply-add."""
    model.set_attn_implementation("eager")  # so that attention is made of products it can see
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.randint(4, VOCABULARY, (1, LENGTH)))
    return counter.get_total_flops()


@pytest.mark.parametrize("options", [{}, {"poolers": 0}, {"pooler_size": 12}, {"exit_layers": [2, 4]}], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_counters_against_torch(family: str, options: dict[str, Any]) -> None:
    model = tiny_model(family, **options)
    shape, torch_says = ModelShape.of(model), counted_by_torch(model)
    depth, hidden, heads, exits = shape.depth, shape.hidden, shape.heads, len(model.exits)

    norms = 2 * LENGTH * (shape.embedding or hidden) + depth * 2 * 2 * LENGTH * hidden
    scale_and_softmax = depth * heads * 2 * LENGTH**2
    assert 2 * (shape.elue_macs(LENGTH, exits=exits) - norms - scale_and_softmax) == torch_says

    pooler = hidden * shape.pooler if shape.pooler else 0
    heads_of_exits = 2 * exits * (pooler + (shape.pooler or hidden) * shape.classes)
    to_hidden = 2 * LENGTH * shape.embedding * hidden if shape.embedding else 0
    assert shape.ebert_flops(LENGTH) + heads_of_exits + to_hidden == torch_says


def test_shapes() -> None:
    assert ModelShape.of(tiny_model("albert")) == ModelShape("albert", 4, 16, 4, 24, 3, embedding=8, pooler=16)
    assert ModelShape.of(tiny_model("roberta", num_labels=1, poolers=0)).pooler is None


def test_many_lengths_at_once_and_visited_exits() -> None:
    shape, lengths = ModelShape("bert", 12, 768, 12, 3072, 2, pooler=768), np.array([1, 64, 128])
    assert shape.elue_macs(lengths, 6).tolist() == [shape.elue_macs(int(n), 6) for n in lengths]
    assert shape.elue_macs(128, 6) == elue_macs(768, 12, 3072, 6, 128, 2)
    assert shape.elue_macs(128, 6, exits=6) - shape.elue_macs(128, 6) == 5 * (768**2 + 768 * 2)
    assert shape.ebert_flops(lengths, 3).tolist() == [shape.ebert_flops(int(n), 3) for n in lengths]


def test_ebert_figures_of_bert_base() -> None:
    layer = EbertLayer(768, 12, 3072)
    assert [12 * layer.all_kept(length) for length in (64, 128, 384)] == [
        pytest.approx(figure, rel=1e-4) for figure in (11.023e9, 22.347e9, 70.666e9)
    ]
    assert (layer.head(128), layer.ffn(128)) == (54_525_952, 1_207_959_552)
    assert (layer.head_predictor(), layer.ffn_predictor()) == (99_840, 491_520)
    gates = layer.head_predictor() + layer.ffn_predictor()
    assert layer.gated(128, 12, 3072) == layer.all_kept(128) + gates
    assert layer.gated(128, 0, 0) == gates


def test_ebert_legacy_counts_heads_of_64_and_predictors_of_12() -> None:
    ours, legacy = EbertLayer(384, 12, 1536), EbertLayer(384, 12, 1536, legacy=True)
    assert legacy.head(128) == 2 * ours.head(128)
    assert EbertLayer(1024, 16, 4096, legacy=True).head_predictor() == 2 * 64 * 1024 + 2 * 64 * 12
    assert legacy.gated(128, 0, 0) - ours.gated(128, 0, 0) == 11 * ours.head_predictor()
