"""Answers as files, under the names and in the layout of the original question-answering programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from offramp.tasks.squad.answers import Answer
from offramp.whole_file import whole_file

PREDICTIONS, NBEST, NULL_ODDS = "predictions_.json", "nbest_predictions_.json", "null_odds_.json"


def write_answers(folder: str | Path, answers: Sequence[Answer], version2: bool) -> list[Path]:
    """Write `predictions_.json`, `nbest_predictions_.json` and, for SQuAD 2.0, `null_odds_.json`, each by question id.

    The first is what SQuAD's official evaluation programs read; the last is what 2.0's reads as `--na-prob-file`.
    """
    contents: dict[str, dict[str, Any]] = {
        PREDICTIONS: {answer.id: answer.text for answer in answers},
        NBEST: {answer.id: [asdict(candidate) for candidate in answer.nbest] for answer in answers},
    }
    if version2:
        contents[NULL_ODDS] = {answer.id: answer.null_odds for answer in answers}
    for name, content in contents.items():
        with whole_file(Path(folder) / name) as file:
            file.write(json.dumps(content, indent=4) + "\n")
    return [Path(folder) / name for name in contents]
