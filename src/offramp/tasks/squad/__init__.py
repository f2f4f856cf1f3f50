"""Questions whose answers are spans of a text: SQuAD 1.1 and 2.0, and data in their format."""

from offramp.tasks.squad.answers import Answer, Candidate, find_answers
from offramp.tasks.squad.best_spans import SpanTable, best_spans
from offramp.tasks.squad.metric import squad_scores
from offramp.tasks.squad.prediction_files import write_answers
from offramp.tasks.squad.questions import Question, Questions, trainable
from offramp.tasks.squad.reading import read_squad
from offramp.tasks.squad.squad_task import is_squad, squad_task
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
