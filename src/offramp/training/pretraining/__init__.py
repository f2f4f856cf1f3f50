"""Pre-training with an exit after every layer: masked words and sentence order, gradient equilibrium, groups."""

from offramp.training.pretraining.corpus import Corpus, prepare_corpus
from offramp.training.pretraining.groups import exit_groups
from offramp.training.pretraining.plan import PretrainingPlan
from offramp.training.pretraining.run import Watching, pretrain

__all__ = ["Corpus", "PretrainingPlan", "Watching", "exit_groups", "prepare_corpus", "pretrain"]
