"""Questions whose answers are spans of a text: SQuAD 1.1 and 2.0, and data in their format."""

from typing import TYPE_CHECKING

from offramp.lazy_names import lazy_names
from offramp.tasks.squad.questions import Question, Questions, trainable
from offramp.tasks.squad.reading import read_squad
from offramp.tasks.squad.squad_task import is_squad, squad_task

if TYPE_CHECKING:
    from offramp.tasks.squad.answers import Answer, Candidate, find_answers
    from offramp.tasks.squad.metric import squad_scores
    from offramp.tasks.squad.prediction_files import write_answers
    from offramp.tasks.squad.span_table import SpanTable, best_spans
    from offramp.tasks.squad.windows import Window, WindowEncoder, window_encoder

__all__ = [
    "Answer",
    "Candidate",
    "Question",
    "Questions",
    "SpanTable",
    "Window",
    "WindowEncoder",
    "best_spans",
    "find_answers",
    "is_squad",
    "read_squad",
    "squad_scores",
    "squad_task",
    "trainable",
    "window_encoder",
    "write_answers",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Answer": "offramp.tasks.squad.answers",
        "Candidate": "offramp.tasks.squad.answers",
        "SpanTable": "offramp.tasks.squad.span_table",
        "Window": "offramp.tasks.squad.windows",
        "WindowEncoder": "offramp.tasks.squad.windows",
        "best_spans": "offramp.tasks.squad.span_table",
        "find_answers": "offramp.tasks.squad.answers",
        "squad_scores": "offramp.tasks.squad.metric",
        "window_encoder": "offramp.tasks.squad.windows",
        "write_answers": "offramp.tasks.squad.prediction_files",
    },
)
"""Questions are read without a model, and so without torch."""
