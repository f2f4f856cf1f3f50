"""The multi-exit model: a backbone and its exits."""

from offramp.models.config import MultiExitConfig
from offramp.models.early_exit import Answer
from offramp.models.exits import Exits
from offramp.models.modeling import (
    Branch,
    MultiExitEncoder,
    MultiExitForQuestionAnswering,
    MultiExitForSequenceClassification,
    MultiExitModel,
    MultiExitOutput,
    MultiExitSpanOutput,
)
from offramp.models.objectives import Classification, Objective, Regression, Span

__all__ = [
    "Answer",
    "Branch",
    "Classification",
    "Exits",
    "MultiExitConfig",
    "MultiExitEncoder",
    "MultiExitForQuestionAnswering",
    "MultiExitForSequenceClassification",
    "MultiExitModel",
    "MultiExitOutput",
    "MultiExitSpanOutput",
    "Objective",
    "Regression",
    "Span",
]
