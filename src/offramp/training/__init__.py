"""Running a recipe's phases: on batches in memory here, on a task by `offramp.train`."""

from offramp.training.loop import Batch, Step, train_on_batches
from offramp.training.phase_gradients import PhaseGradients

__all__ = ["Batch", "PhaseGradients", "Step", "train_on_batches"]
