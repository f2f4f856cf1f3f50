"""Transformer encoders that stop computing once they know the answer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from offramp.errors import OfframpError
from offramp.interop import convert, load
from offramp.models import MultiExitConfig, MultiExitForQuestionAnswering, MultiExitForSequenceClassification

if TYPE_CHECKING:
    from offramp.calibration import calibrate
    from offramp.calibration.checking import check
    from offramp.engine import Engine
    from offramp.evaluation.comparison import compare
    from offramp.evaluation.run import evaluate
    from offramp.exported_folder import export
    from offramp.folded_folder import fold
    from offramp.prediction import predict
    from offramp.tasks import task
    from offramp.training.run import train

__version__ = "0.1.0"

__all__ = [
    "Engine",
    "MultiExitConfig",
    "MultiExitForQuestionAnswering",
    "MultiExitForSequenceClassification",
    "OfframpError",
    "calibrate",
    "check",
    "compare",
    "convert",
    "evaluate",
    "export",
    "fold",
    "load",
    "predict",
    "task",
    "train",
]

_VERBS = {
    "Engine": "offramp.engine",
    "calibrate": "offramp.calibration",
    "check": "offramp.calibration.checking",
    "compare": "offramp.evaluation.comparison",
    "evaluate": "offramp.evaluation.run",
    "export": "offramp.exported_folder",
    "fold": "offramp.folded_folder",
    "predict": "offramp.prediction",
    "task": "offramp.tasks",
    "train": "offramp.training.run",
}
"""Where they live. Imported when they are first used: the Trainer alone takes seconds."""


def __getattr__(name: str) -> Any:
    if name in _VERBS:
        return getattr(import_module(_VERBS[name]), name)
    raise AttributeError(f"module 'offramp' has no attribute {name!r}")
