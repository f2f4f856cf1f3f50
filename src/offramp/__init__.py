"""Transformer encoders that stop computing once they know the answer."""

from offramp.errors import OfframpError
from offramp.interop import convert, load
from offramp.models import MultiExitConfig, MultiExitForQuestionAnswering, MultiExitForSequenceClassification

__version__ = "0.1.0"

__all__ = [
    "MultiExitConfig",
    "MultiExitForQuestionAnswering",
    "MultiExitForSequenceClassification",
    "OfframpError",
    "convert",
    "load",
]
