"""What `POST /predict` is sent, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from offramp.engine import Text
from offramp.errors import OfframpError
from offramp.serving.answers import Answer, OperatingPoint
from offramp.serving.refusals import Refused

VALUE = "value"
"""The label of a number, where a model answers with one."""
TIMES = {"queued": "queue", "tokenise": "tokenization", "inference": "inference", "total": "total"}
"""What headers call what is measured: the names that clients of such servers know."""
MOST_LISTED = 512
"""Texts whose exits are named in headers: clients and proxies take some thousand bytes of one."""
INPUTS = {
    "description": "A text, or a list. In a list, a text is a string or a list of one, and a pair is a list of two. "
    "Where the model was trained on pairs, a plain list of two strings is one pair.",
    "anyOf": [
        {"type": "string"},
        {
            "type": "array",
            "minItems": 1,
            "items": {
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}},
                ]
            },
        },
    ],
    "examples": ["a fine film", ["a fine film", "a dull one"], [["It rains.", "The street is wet."]]],
}


class Wish(BaseModel):
    """How a request wants to be answered: at most one of `max_loss`, `policy` and `full_depth`."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    max_loss: float | None = Field(
        None, ge=0, le=1, description="The cheapest operating point that is certified to lose no more than this."
    )
    policy: str | None = Field(None, max_length=4096, description="When to leave, as text, such as entropy(0.1).")
    full_depth: bool = Field(False, description="Run every layer.")
    truncate: bool = Field(True, description="Cut a text that is too long; otherwise it is refused.")
    timeout_s: float | None = Field(
        None, ge=0.001, le=3600, description="Give up after so many seconds; the server may give up sooner."
    )


class PredictRequest(Wish):
    inputs: Annotated[Any, WithJsonSchema(INPUTS)]
    raw_scores: bool = Field(False, description="Logits instead of probabilities.")
    details: bool = Field(False, description="Answer with an object that also says where each text left, and why.")
    truncation_direction: Literal["right", "Right"] = Field("right", description="The end is what is cut.")


class Prediction(BaseModel):
    label: str
    score: float


class Detail(BaseModel):
    """How one text was answered."""

    label: str | float | None = Field(description="None where there is no answer.")
    confidence: float | None = Field(description="The label's probability at the exit; none for numbers.")
    exit_layer: int | None = Field(description="The layer it left after, of `layers`.")
    layers: int
    tokens: int
    error: str | None = Field(description="Why there is no answer.")


class Point(BaseModel):
    """What a request was answered under."""

    name: str
    policy: str
    promise: str | None = Field(description="Nothing is promised where there is none.")
    limit: float | None = Field(description="The promised largest loss, as a fraction.")
    expected: dict[str, float] = Field(description="What was measured when it was calibrated.")


class Detailed(BaseModel):
    predictions: list[Prediction] | list[list[Prediction]] = Field(description="As without details.")
    details: list[Detail] = Field(description="One for each text.")
    point: Point
    timings_ms: dict[str, float] = Field(description="queued, tokenise, inference and total, in milliseconds.")


class Problem(BaseModel):
    error: str
    error_type: str


def parsed(model: type[BaseModel], body: bytes) -> Any:
    """A body as a model of what is expected; what is wrong with it is said in one line, without the text itself."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"] if isinstance(part, str | int))
        raise Refused(422, f"{place or 'the body'}: {first['msg']}"[:500]) from None


def texts_of(inputs: Any, most: int, wants_pairs: bool | None) -> tuple[list[Text], bool]:
    """The texts of `inputs`, and whether it was one alone."""
    if isinstance(inputs, str):
        return [inputs], True
    if not isinstance(inputs, list):
        raise Refused(422, "inputs: expected a text, or a list of texts or of pairs of texts")
    if not inputs:
        raise Refused(422, "inputs: the list is empty")
    if len(inputs) > most:
        raise too_many(len(inputs), most)
    if wants_pairs and len(inputs) == 2 and all(isinstance(part, str) for part in inputs):
        return [(inputs[0], inputs[1])], True
    return [_text(item, place) for place, item in enumerate(inputs)], False


def _text(item: Any, place: int) -> Text:
    parts = item if isinstance(item, list) else [item]
    if not 1 <= len(parts) <= 2 or not all(isinstance(part, str) for part in parts):
        raise Refused(422, f"inputs.{place}: expected a text, or a list of one or two texts")
    return parts[0] if len(parts) == 1 else (parts[0], parts[1])


def too_many(given: int, most: int) -> Refused:
    return Refused(413, f"{given:,} texts, but a request may hold {most:,}: send them in several")


def predictions(answer: Answer, labels: Sequence[str], raw: bool) -> list[dict[str, Any]]:
    """Every label with its score, the best first; none where the text has no answer."""
    if answer.error is not None:
        return []
    if not labels:
        return [{"label": VALUE, "score": answer.logits[0]}]
    scores = answer.logits if raw else answer.scores
    ranked = sorted(zip(labels, scores, strict=True), key=lambda pair: -pair[1])
    return [{"label": label, "score": score} for label, score in ranked]


def detail(answer: Answer) -> dict[str, Any]:
    names = ("label", "exit_layer", "layers", "tokens", "error")
    return {name: getattr(answer, name) for name in names} | {"confidence": answer.score}


def point_said(point: OperatingPoint) -> dict[str, Any]:
    names = ("name", "promise", "limit")
    told = {name: getattr(point, name) for name in names}
    return told | {"policy": str(point.policy), "expected": dict(point.expected)}


def timings(answers: Sequence[Answer], total_s: float) -> dict[str, float]:
    """The longest of each, in milliseconds."""
    names = ("queued", "tokenise", "inference")
    longest = {name: max(getattr(answer, f"{name}_s") for answer in answers) for name in names}
    return {name: round(1000 * seconds, 3) for name, seconds in {**longest, "total": total_s}.items()}


def facts(answers: Sequence[Answer], took: dict[str, float]) -> dict[str, str]:
    """The same as headers: exit layers and confidences in the order of the texts, a - where there is none."""
    listed = answers if len(answers) <= MOST_LISTED else ()
    layers = ",".join("-" if answer.exit_layer is None else str(answer.exit_layer) for answer in listed)
    sure = ",".join("-" if answer.score is None else f"{answer.score:.4f}" for answer in listed)
    return {
        **({"x-offramp-exit-layer": layers, "x-offramp-confidence": sure} if listed else {}),
        "x-offramp-layers": str(answers[0].layers),
        "x-offramp-point": answers[0].point.name.encode("ascii", "replace").decode(),
        "x-offramp-failed": str(sum(answer.error is not None for answer in answers)),
        "x-compute-tokens": str(sum(answer.tokens for answer in answers)),
        **{f"x-{TIMES[name]}-time": f"{ms:.3f}" for name, ms in took.items()},
    }


def check_some_answered(answers: Sequence[Answer]) -> None:
    """Where no text has an answer, neither has the request."""
    if all(answer.error is not None for answer in answers):
        raise OfframpError(str(answers[0].error))
