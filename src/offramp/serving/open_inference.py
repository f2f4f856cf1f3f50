"""The Open Inference Protocol (V2): health, metadata, and tensors of texts to tensors of labels.

A request's input `text` holds one text a row or, with a second column, one pair; or the second texts come in a tensor
of their own, `text_pair`. Tensors come as JSON; binary ones are refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from offramp import __version__
from offramp.engine import Text
from offramp.serving.answering import Answering
from offramp.serving.answers import Answer
from offramp.serving.documenting import body_of, errors
from offramp.serving.refusals import Refused
from offramp.serving.schemas import Wish, facts, parsed, point_said, timings, too_many

TEXT, PAIR = "text", "text_pair"
IGNORED = ("binary_data_output", "binary_data")
"""Parameters that clients send whatever they are answered with."""
Output = tuple[str, list[int], Callable[[Sequence[Answer]], list[Any]]]
"""Datatype, shape of a row, and the numbers of some answers."""


class Tensor(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(description="text, or text_pair.")
    shape: list[int] = Field(description="[n], [n, 1], or [n, 2] for pairs.")
    datatype: str = Field(description="BYTES.")
    data: list[Any] = Field(description="Strings, row by row, flat or nested.")
    parameters: dict[str, Any] | None = None


class Requested(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    parameters: dict[str, Any] | None = None


class InferRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: str | None = Field(None, max_length=256)
    inputs: list[Tensor] = Field(min_length=1, max_length=2)
    outputs: list[Requested] | None = Field(None, description="Those wanted; default: all.")
    parameters: dict[str, Any] | None = Field(
        None, description="max_loss, policy, full_depth, truncate and timeout_s, as in /predict."
    )


class InferResponse(BaseModel):
    model_name: str
    model_version: str
    id: str | None = None
    parameters: dict[str, Any]
    outputs: list[dict[str, Any]]


def open_inference_router(answering: Answering) -> APIRouter:
    """The protocol's routes."""
    router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"])
    service = answering.service

    @router.get("", summary="What this server is")
    async def server() -> dict[str, Any]:
        return {"name": "offramp", "version": __version__, "extensions": []}

    @router.get("/health/live", summary="Whether the server runs")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @router.get("/health/ready", summary="Whether it can answer", responses=errors(503))
    async def ready() -> dict[str, bool]:
        answering.check_ready()
        return {"ready": True}

    @router.get("/models/{name}", summary="What the model takes and gives", responses=errors(404))
    async def metadata(name: str) -> dict[str, Any]:
        _check_name(name, service.name)
        outputs = _outputs(answering.labels)
        return {
            "name": service.name,
            "versions": [],
            "platform": "offramp",
            "inputs": [{"name": TEXT, "datatype": "BYTES", "shape": [-1, -1]}],
            "outputs": [
                {"name": name, "datatype": kind, "shape": [-1, *row]} for name, (kind, row, _) in outputs.items()
            ],
        }

    @router.get("/models/{name}/ready", summary="Whether the model can answer", responses=errors(404, 503))
    async def model_ready(name: str) -> dict[str, Any]:
        _check_name(name, service.name)
        answering.check_ready()
        return {"name": service.name, "ready": True}

    @router.post(
        "/models/{name}/infer",
        summary="Answer texts",
        response_model=InferResponse,
        responses=errors(404, 408, 413, 415, 422, 429, 503, 504),
        openapi_extra=body_of(InferRequest),
    )
    async def infer(name: str, request: Request) -> Response:
        started = time.perf_counter()
        _check_name(name, service.name)
        asked: InferRequest = parsed(InferRequest, await request.body())
        texts = _texts(asked.inputs, answering.settings.max_inputs)
        outputs = _outputs(answering.labels)
        wanted = [one.name for one in asked.outputs] if asked.outputs else [*outputs]
        if unknown := [name for name in wanted if name not in outputs]:
            raise Refused(422, f"outputs: no {unknown[0][:50]!r} here; there is {', '.join(outputs)}")
        given = {name: value for name, value in (asked.parameters or {}).items() if name not in IGNORED}
        answers = await answering.answer(texts, parsed(Wish, to_json(given)))
        tensors = [_tensor(name, answers, *outputs[name]) for name in wanted]
        if any(answer.error for answer in answers):
            tensors.append(_tensor("error", answers, "BYTES", [], lambda some: [one.error or "" for one in some]))
        told = {name: value for name, value in point_said(answers[0].point).items() if name != "expected"}
        point = {f"point_{name}": value for name, value in told.items() if value is not None}
        said = {"model_name": service.name, "model_version": "", "parameters": point, "outputs": tensors}
        if asked.id is not None:
            said["id"] = asked.id
        headers = facts(answers, timings(answers, time.perf_counter() - started))
        return Response(to_json(said), headers=headers, media_type="application/json")

    return router


def _check_name(name: str, own: str) -> None:
    if name != own:
        raise Refused(404, f"no model {name[:100]!r} here: this server has {own!r}")


def _texts(tensors: Sequence[Tensor], most: int) -> list[Text]:
    columns = {}
    for tensor in tensors:
        if tensor.name not in (TEXT, PAIR) or tensor.name in columns:
            raise Refused(422, f"inputs: expected {TEXT!r} and perhaps {PAIR!r}, once each, not {tensor.name[:50]!r}")
        columns[tensor.name] = _rows(tensor, most)
    if TEXT not in columns:
        raise Refused(422, f"inputs: {TEXT!r} is missing")
    rows = columns[TEXT]
    if PAIR in columns:
        seconds = columns[PAIR]
        if len(seconds) != len(rows) or any(len(row) > 1 for row in (*rows, *seconds)):
            raise Refused(422, f"inputs: {PAIR!r} must have one text for each of {TEXT!r}, both of shape [n]")
        rows = [[*first, *second] for first, second in zip(rows, seconds, strict=True)]
    return [row[0] if len(row) == 1 else (row[0], row[1]) for row in rows]


def _rows(tensor: Tensor, most: int) -> list[list[str]]:
    """A tensor's texts, one or two a row."""
    name, shape = tensor.name[:50], tensor.shape
    if tensor.datatype != "BYTES":
        raise Refused(422, f"inputs: {name} has datatype {tensor.datatype[:20]!r}: texts are BYTES")
    rows, *rest = shape or [0]
    if rows < 1 or rest not in ([], [1], [2]):
        raise Refused(422, f"inputs: {name} has shape {shape[:8]}: expected [n], [n, 1] or, for pairs, [n, 2]")
    if rows > most:
        raise too_many(rows, most)
    width = rest[0] if rest else 1
    flat: list[Any]
    if any(isinstance(row, list) for row in tensor.data):
        flat = [part for row in tensor.data for part in (row if isinstance(row, list) else [None])]
        whole = all(isinstance(row, list) and len(row) == width for row in tensor.data)
    else:
        flat, whole = tensor.data, True
    if not whole or len(flat) != rows * width:
        raise Refused(422, f"inputs: the data of {name} has not the shape {shape}")
    if not all(isinstance(part, str) for part in flat):
        raise Refused(422, f"inputs: the data of {name} must be strings")
    return [flat[place : place + width] for place in range(0, len(flat), width)]


def _outputs(labels: Sequence[str]) -> dict[str, Output]:
    """Of a row without an answer: an empty label, a zero, layer 0; the tensor `error` says why."""
    exit_layer: Output = ("INT32", [], lambda answers: [answer.exit_layer or 0 for answer in answers])
    if not labels:
        return {"value": ("FP32", [], lambda answers: [answer.label or 0.0 for answer in answers])} | {
            "exit_layer": exit_layer
        }
    none = [0.0] * len(labels)
    return {
        "label": ("BYTES", [], lambda answers: [answer.label or "" for answer in answers]),
        "score": ("FP32", [], lambda answers: [answer.score or 0.0 for answer in answers]),
        "scores": ("FP32", [len(labels)], lambda answers: [one for answer in answers for one in answer.scores or none]),
        "exit_layer": exit_layer,
    }


def _tensor(
    name: str, answers: Sequence[Answer], kind: str, row: list[int], numbers: Callable[[Sequence[Answer]], list[Any]]
) -> dict[str, Any]:
    return {"name": name, "datatype": kind, "shape": [len(answers), *row], "data": numbers(answers)}
