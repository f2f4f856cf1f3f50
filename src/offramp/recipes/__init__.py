"""How a model is trained: one file a method, each readable beside its paper; every file here is found by itself."""

from offramp.discovery import import_all
from offramp.recipes.base import REGISTRY, ConstantGroup, Forward, Gradients, Phase, Recipe, Schedule
from offramp.recipes.deebert import DeeBERT
from offramp.recipes.ebert import EBERT
from offramp.recipes.elasticbert import ElasticBERT
from offramp.recipes.elbert import ELBERT, exit_weights
from offramp.recipes.frozen import Frozen
from offramp.recipes.offramp import Offramp
from offramp.recipes.plain import Plain
from offramp.recipes.romebert import RomeBERT

import_all(__name__, __path__)

__all__ = [
    "EBERT",
    "ELBERT",
    "REGISTRY",
    "ConstantGroup",
    "DeeBERT",
    "ElasticBERT",
    "Forward",
    "Frozen",
    "Gradients",
    "Offramp",
    "Phase",
    "Plain",
    "Recipe",
    "RomeBERT",
    "Schedule",
    "exit_weights",
]
