"""The multi-exit model: a backbone and its exits."""

from offramp.models.config import MultiExitConfig
from offramp.models.early_exit import Answer
from offramp.models.exits import Exits
from offramp.models.gate_settings import GateSettings
from offramp.models.gates import Gates, Kept
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
from offramp.models.skipping import Skipping

__all__ = [
    "Answer",
    "Branch",
    "Classification",
    "Exits",
    "GateSettings",
    "Gates",
    "Kept",
    "MultiExitConfig",
    "MultiExitEncoder",
    "MultiExitForQuestionAnswering",
    "MultiExitForSequenceClassification",
    "MultiExitModel",
    "MultiExitOutput",
    "MultiExitSpanOutput",
    "Objective",
    "Regression",
    "Skipping",
    "Span",
]
