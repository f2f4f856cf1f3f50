"""Answers for texts: a list of them, or a file of any size."""

from offramp.prediction.run import predict
from offramp.prediction.span_predictor import SpanPrediction, SpanPredictor

__all__ = ["SpanPrediction", "SpanPredictor", "predict"]
