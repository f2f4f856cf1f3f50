"""What an exit is asked: a class, a number or a span; and how far an answer is from the truth or from a teacher."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn import functional as F


class Objective(ABC):
    """One kind of task: its loss, and the distance of a student exit from a teacher exit."""

    name: str

    @abstractmethod
    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Mean loss of a batch against the labels."""

    @abstractmethod
    def distil(self, student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """Mean distance of the student's answer from the teacher's, both softened; multiply by T² to undo the scale."""


class Classification(Objective):
    """Cross entropy; distillation by the Kullback-Leibler divergence averaged over samples *and* classes."""

    name = "classification"

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(logits, target)

    def distil(self, student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """(1 / BC) Σ t ln(t / s): torch's element mean, C times smaller than a per-sample divergence (RomeBERT)."""
        log_student = (student / temperature).log_softmax(-1)
        return F.kl_div(log_student, (teacher / temperature).softmax(-1), reduction="none").mean()


class Regression(Objective):
    """Squared error, to the labels and to the teacher alike."""

    name = "regression"

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(logits.flatten(), target.to(logits.dtype).flatten())

    def distil(self, student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        return F.mse_loss(student / temperature, teacher / temperature)


class Span(Objective):
    """Where an answer starts and ends: mean of the two cross entropies over positions.

    Logits are (B, T, 2), targets (B, 2); a position outside the window (negative, or T and beyond) is not counted.
    """

    name = "span"

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        length = logits.shape[1]
        by_end = logits.transpose(1, 2)  # (B, 2, T)
        inside = (target >= 0) & (target < length)  # (B, 2)
        each = F.cross_entropy(by_end.flatten(0, 1), target.clamp(0, length - 1).flatten(), reduction="none")
        each = each.view_as(target) * inside
        return (each.sum(0) / inside.sum(0).clamp(min=1)).mean()

    def distil(self, student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """Divergence per sample and end, so that the number of padded positions does not matter."""
        log_student = (student / temperature).log_softmax(1)  # (B, T, 2)
        log_teacher = (teacher / temperature).log_softmax(1)
        probability = log_teacher.exp()
        terms = torch.where(probability > 0, probability * (log_teacher - log_student), 0.0)
        return terms.sum(1).mean()
