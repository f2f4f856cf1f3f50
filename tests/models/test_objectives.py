"""Distances and losses, each against its formula."""

from __future__ import annotations

import torch

from offramp.models import Classification, Regression, Span

STUDENT, TEACHER = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0)).unbind(0)


def divergence(teacher: torch.Tensor, student: torch.Tensor) -> torch.Tensor:
    """Σ t ln(t / s) over the last dimension."""
    t, s = teacher.softmax(-1), student.softmax(-1)
    return (t * (t / s).log()).sum(-1)


def test_classes_are_distilled_by_the_element_mean() -> None:
    found = Classification().distil(STUDENT, TEACHER, 2.0)
    torch.testing.assert_close(found, divergence(TEACHER / 2, STUDENT / 2).mean() / 3)


def test_numbers_are_distilled_by_their_distance() -> None:
    found = Regression().distil(STUDENT[:, :1], TEACHER[:, :1], 2.0)
    torch.testing.assert_close(found * 2.0**2, ((STUDENT[:, 0] - TEACHER[:, 0]) ** 2).mean())


def test_spans_are_distilled_per_sample_and_end_whatever_the_padding() -> None:
    student, teacher = (torch.randn(2, 4, 6, 2, generator=torch.Generator().manual_seed(1))).unbind(0)  # (B, T, 2)
    expected = divergence(teacher.transpose(1, 2), student.transpose(1, 2)).mean()
    torch.testing.assert_close(Span().distil(student, teacher, 1.0), expected)
    padding = torch.full((4, 3, 2), torch.finfo(torch.float32).min)
    padded = Span().distil(torch.cat([student, padding], 1), torch.cat([teacher, padding], 1), 1.0)
    torch.testing.assert_close(padded, expected)


def test_positions_outside_the_window_are_not_counted() -> None:
    logits = torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(2))
    target = torch.tensor([[0, 4], [5, 2], [-1, 9]])
    start = -logits[0, :, 0].log_softmax(0)[0]
    end = -(logits[0, :, 1].log_softmax(0)[4] + logits[1, :, 1].log_softmax(0)[2]) / 2
    torch.testing.assert_close(Span().loss(logits, target), (start + end) / 2)
