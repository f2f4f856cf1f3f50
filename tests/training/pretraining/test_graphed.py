"""A step as a CUDA graph takes the steps of one that is launched piece by piece."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from offramp.training.pretraining.course import Course
from offramp.training.pretraining.graphed import GraphedStep
from offramp.training.pretraining.groups import exit_groups, group_at
from offramp.training.pretraining.pairs import read_pairs
from offramp.training.pretraining.start import starting_model
from offramp.training.pretraining.stepping import Stepper
from tests.training.pretraining.small_corpus import plan, small_corpus, small_pairs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")


@pytest.mark.parametrize("order", [True, False])
@pytest.mark.parametrize("long_length", [None, 64])
@pytest.mark.parametrize("pairs", [False, True])
def test_graphs_take_the_same_steps(order: bool, long_length: int | None, pairs: bool, tmp_path: Path) -> None:
    """Over groups, kinds and lengths: each is captured when it first comes, and replayed with other rows later."""
    corpus = small_corpus(tmp_path)
    table = small_pairs(tmp_path / "pairs.csv") if pairs else None
    chosen = plan(
        order=order, long_length=long_length, long_share=0.3, groups=2, learning_rate=1e-3, pairs=table and str(table)
    )
    read = read_pairs(table, corpus.tokenizer) if table else None
    course, groups = Course(corpus.store.train, corpus.words, chosen, pairs=read), exit_groups(4, 2)
    found = []
    for graphed in (True, False):
        model = starting_model(chosen, corpus.tokenizer).cuda().train()
        stepper = Stepper(model, chosen, bf16=False)
        assert isinstance(stepper.compute, GraphedStep)
        if not graphed:
            stepper.compute = stepper._compute
        losses = [
            stepper.step(course.rows(step), group_at(course.turn(step), groups), chosen.rate_at(step)).sum()
            for step in range(16)
        ]
        found.append(torch.stack(losses))
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3)
