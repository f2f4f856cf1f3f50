"""Questions on generated contexts, in memory and as a file in SQuAD's format."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from offramp.tasks.squad import Questions, read_squad
from tests.generated import BAD, FILLER, GOOD


def squad_file(
    path: Path, questions: int = 12, version2: bool = True, labelled: bool = True, words: int = 60, seed: int = 0
) -> Path:
    """Contexts of up to so many words, which take several windows of a tiny model; a third of 2.0's have no answer."""
    draw = random.Random(seed)
    paragraphs = []
    for number in range(questions):
        context = draw.choices([*FILLER, *GOOD, *BAD], k=draw.randint(3, words))
        first = draw.randrange(len(context))
        start = sum(len(word) + 1 for word in context[:first])
        text = " ".join(context[first : first + draw.randint(1, 3)])
        asked = {"id": f"q{number}", "question": " ".join(draw.choices(FILLER, k=3))}
        impossible = version2 and number % 3 == 2
        if labelled:
            asked["answers"] = [] if impossible else [{"text": text, "answer_start": start}]
        if version2 and labelled:
            asked["is_impossible"] = impossible
        paragraphs.append({"context": " ".join(context), "qas": [asked]})
    version = "v2.0" if version2 else "1.1"
    path.write_text(json.dumps({"version": version, "data": [{"title": "made up", "paragraphs": paragraphs}]}))
    return path


def made_questions(folder: Path, **how: Any) -> Questions:
    return read_squad(squad_file(folder / "made.json", **how))
