"""EBERT: its FLOPs formula, on made-up counts and on those its models kept."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.evaluation.flops import EbertLayer
from tests.golden.cases import GoldenCase

CHECKED = (
    r"flops\.npz:(base|large)/(head_kept_counts|ffn_kept_neurons|table)$",
    r"outputs\.npz:(head_kept_counts|ffn_kept_counts|flops)$",
)
SHAPES = {"base": (768, 12, 3072), "large": (1024, 16, 4096)}


def total_in_float32(layer: EbertLayer, length: int, heads: np.ndarray, neurons: np.ndarray) -> float:
    """The dynamic figure added up as the original does: one float32, head after head and predictor after predictor.

    `heads` (n, heads) and `neurons` (n,) are the shares of samples, and of neurons, that were kept.
    """
    total, single = np.float32(0), np.float32
    for shares, share in zip(heads.astype(single), neurons.astype(single), strict=True):
        for kept in shares:
            total = total + kept * single(layer.head(length)) + single(layer.head_predictor())
        total = total + share * single(layer.ffn(length)) + single(layer.ffn_predictor())
    return float(total)


def assert_report(layer: EbertLayer, length: int, heads: np.ndarray, neurons: np.ndarray, expected: np.ndarray) -> None:
    """[original, dynamic average, ratio]: exactly, added up as the original does; ours within its rounding."""
    original, dynamic, ratio = expected
    assert len(heads) * layer.all_kept(length) == original
    assert total_in_float32(layer, length, heads, neurons) == dynamic
    ours = sum(layer.gated(length, h.sum(), r * layer.intermediate) for h, r in zip(heads, neurons, strict=True))
    rounding = (heads.size + len(heads)) * float(np.finfo(np.float32).eps)  # half a unit for each of 2 additions
    assert ours == pytest.approx(dynamic, rel=rounding)
    assert ours / original == pytest.approx(ratio, rel=rounding)


@pytest.mark.golden("ebert", needs=r"flops\.npz:")
@pytest.mark.parametrize("size", SHAPES)
def test_flops_functions(case: GoldenCase, size: str) -> None:
    stored, layer = case.arrays("flops.npz"), EbertLayer(*SHAPES[size], legacy=True)
    heads = stored[f"{size}/head_kept_counts"] / case.settings["num_samples"]
    neurons = stored[f"{size}/ffn_kept_neurons"] / layer.intermediate
    for length, *expected in stored[f"{size}/table"]:
        at = int(length)
        assert_report(layer, at, heads, neurons, expected[:3])
        assert [layer.head(at), layer.ffn(at), layer.head_predictor(), layer.ffn_predictor()] == expected[3:]


@pytest.mark.golden("ebert", needs=r"outputs\.npz:flops$")
def test_flops_report(case: GoldenCase) -> None:
    stored, config = case.arrays("outputs.npz"), case.config
    layer = EbertLayer(config["hidden_size"], config["num_attention_heads"], config["intermediate_size"], legacy=True)
    samples = stored["head_masks"].shape[1]
    heads, neurons = stored["head_kept_counts"] / samples, stored["ffn_kept_counts"].mean(1) / samples
    assert_report(layer, case.settings["flops_length"], heads, neurons, stored["flops"])
