"""`offramp predict` with a model that answers questions with spans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offramp.cli.predict_progress import rows_progress
from offramp.cli.refusal import refuse
from offramp.errors import Interrupted, OfframpError

if TYPE_CHECKING:
    from offramp.prediction import SpanPrediction, SpanPredictor

PANEL = "Questions"


def _option(help: str, **limits: Any) -> Any:
    return typer.Option(help=help, rich_help_panel=PANEL, **limits)


NullThreshold = Annotated[
    float | None,
    _option("No answer where that scores so much more than the best span; default: 0 for SQuAD 2.0, else never."),
]
NBest = Annotated[int | None, _option("Candidates to write for each question; default: 20.", min=1)]
MaxAnswerTokens = Annotated[int | None, _option("Longer spans are no answers; default: 30.", min=1)]


def predict_spans(
    predictor: SpanPredictor, input: str | None, pair: str | None, data: Path | None, out: Path | None, overwrite: bool
) -> None:
    """Answer the questions of a file into a folder, or one question on the terminal."""
    from offramp.prediction.inputs import is_file_name
    from offramp.tasks.squad.answers import N_BEST

    if input is not None and data is None and is_file_name(input):
        data, input = Path(input), None
    if (input is None) == (data is None):
        raise OfframpError("expected a file of questions (--data FILE), or a question and its text (--pair TEXT)")
    if data is not None:
        refuse("is the context of a question given as an argument, and not of a file", pair=pair)
        _answer_file(predictor, data, out, overwrite)
        return
    refuse("is for the questions of a file (--data)", out=out)
    if input is None or not input.strip() or pair is None:
        raise OfframpError("the model answers questions on a text: give the question, and the text with --pair")
    [found] = predictor.stream([(input, pair)])
    candidates = {}
    if predictor.n_best != N_BEST:
        candidates = {"candidates": [{"text": one.text, "score": one.probability} for one in found.answer.nbest]}
    typer.echo(json.dumps({"question": input, **_columns(found), **candidates}, ensure_ascii=False))


def _answer_file(predictor: SpanPredictor, data: Path, out: Path | None, overwrite: bool) -> None:
    """Write the files of the original programs: whole, or none of them."""
    from offramp.prediction.files import heeding_ctrl_c
    from offramp.tasks.squad import read_squad, write_answers
    from offramp.tasks.squad.prediction_files import PREDICTIONS

    if out is None:
        raise OfframpError("answers to a file of questions are several files: name a folder for them with --out")
    if out.exists() and not out.is_dir():
        raise OfframpError(f"{out} is a file: name a folder for the answers")
    if (out / PREDICTIONS).exists() and not overwrite:
        raise OfframpError(f"{out / PREDICTIONS} exists: name another folder, or say --overwrite")
    questions = read_squad(data)
    found: list[SpanPrediction] = []
    try:
        with heeding_ctrl_c() as check, rows_progress() as count:
            for prediction in predictor.stream_questions(questions):
                found.append(prediction)
                count(len(found))
                check()
    except KeyboardInterrupt:
        done = f"{len(found):,} of {len(questions):,} questions"
        raise Interrupted(f"stopped after {done}: nothing was written") from None
    files = write_answers(out, [one.answer for one in found], predictor.may_be_empty(questions))
    names = ", ".join(path.name for path in files)
    layers = [layer for one in found for layer in one.exit_layers]
    cost = f"{sum(layers) / max(1, len(layers)):.2f} of {predictor.model.backbone.depth} layers"
    answers = f"{len(found):,} answers under {predictor.policy}"
    typer.echo(f"{out}: {names}: {answers}, from {len(layers):,} windows after {cost} on average", err=True)


def _columns(prediction: SpanPrediction) -> dict[str, object]:
    return {
        "answer": prediction.text,
        "score": round(prediction.score, 6),
        "exit_layers": list(prediction.exit_layers),
    }
