"""Transformer encoders that stop computing once they know the answer."""

from typing import TYPE_CHECKING

from offramp.auto_classes import introduce_ourselves
from offramp.errors import OfframpError
from offramp.lazy_names import lazy_names

if TYPE_CHECKING:
    from offramp.adding_exits.run import add_exits
    from offramp.calibration import calibrate
    from offramp.calibration.checking import check
    from offramp.engine import Engine
    from offramp.evaluation.comparison import compare
    from offramp.evaluation.run import evaluate
    from offramp.exported_folder import export
    from offramp.folded_folder import fold
    from offramp.interop import convert, load
    from offramp.models import MultiExitConfig, MultiExitForQuestionAnswering, MultiExitForSequenceClassification
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
    "add_exits",
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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Engine": "offramp.engine",
        "MultiExitConfig": "offramp.models",
        "MultiExitForQuestionAnswering": "offramp.models",
        "MultiExitForSequenceClassification": "offramp.models",
        "add_exits": "offramp.adding_exits.run",
        "calibrate": "offramp.calibration",
        "check": "offramp.calibration.checking",
        "compare": "offramp.evaluation.comparison",
        "convert": "offramp.interop",
        "evaluate": "offramp.evaluation.run",
        "export": "offramp.exported_folder",
        "fold": "offramp.folded_folder",
        "load": "offramp.interop",
        "predict": "offramp.prediction",
        "task": "offramp.tasks",
        "train": "offramp.training.run",
    },
)
"""Torch and transformers take seconds to import: not before they are used."""

introduce_ourselves()
