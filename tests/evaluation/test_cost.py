"""Costs as the papers count them, on figures they or their users published."""

from __future__ import annotations

import pytest

from offramp.evaluation import cost_ratio, elue_macs, elue_mflops, exit_counts, expected_saving, speed_up

PUBLISHED = [  # MRPC, BERT-base: exits by layer and the ratio a user of DeeBERT reported
    ({10: 49, 11: 62, 12: 297}, 0.9673),
    ({6: 4, 8: 1, 9: 10, 10: 110, 11: 58, 12: 225}, 0.9314),
]


@pytest.mark.parametrize(("counts", "ratio"), PUBLISHED)
def test_published_ratios(counts: dict[int, int], ratio: float) -> None:
    layers = [layer for layer, count in counts.items() for _ in range(count)]
    assert cost_ratio(layers, 12) == pytest.approx(ratio, abs=5e-5)
    assert expected_saving(layers, 12) == pytest.approx(1 - ratio, abs=5e-5)
    assert speed_up(layers, 12) == pytest.approx(1 / ratio, abs=1e-4)
    assert {layer: count for layer, count in exit_counts(layers, 12).items() if count} == counts


def test_elue_figures_of_bert_base() -> None:
    figures = [round(elue_mflops(elue_macs(768, 12, 3072, layers, 128, 2)), 1) for layers in (6, 12)]
    assert figures == [11184.6, 22367.7]
