"""Answers for texts: a list of them, or a file of any size."""

from offramp.prediction.predictor import Prediction, Predictor, predict

__all__ = ["Prediction", "Predictor", "predict"]
