"""Running a recipe's phases."""

from offramp.training.loop import Batch, Step, train
from offramp.training.phase_gradients import PhaseGradients

__all__ = ["Batch", "PhaseGradients", "Step", "train"]
