"""Runs a model under a policy as fast as the machine allows."""

from offramp.engine.engine import Engine, Prediction, RowAnswer
from offramp.engine.policy_choice import policy_for
from offramp.engine.texts import Text
from offramp.tasks.encoding import Row

__all__ = ["Engine", "Prediction", "Row", "RowAnswer", "Text", "policy_for"]
