"""The HTTP application around a service."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse

from offramp import __version__
from offramp.errors import OfframpError
from offramp.serving.answering import Answering
from offramp.serving.answers import Closing, Overloaded, TooLate
from offramp.serving.documenting import CSP, body_of, docs_page, document, errors
from offramp.serving.limits import Guard
from offramp.serving.open_inference import InferRequest, open_inference_router
from offramp.serving.page_routes import page_files, page_router
from offramp.serving.refusals import Refused, refusal
from offramp.serving.schemas import (
    Detailed,
    Prediction,
    PredictRequest,
    detail,
    facts,
    parsed,
    point_said,
    predictions,
    texts_of,
    timings,
)
from offramp.serving.service import Service
from offramp.serving.settings import Settings

FREE = ("/health", "/v2/health/live", "/v2/health/ready", "/docs", "/openapi.json")
"""What needs no key: load balancers have none, and learn nothing but whether the server runs; and the description."""
ABOUT = """
Texts to labels by a model that stops computing once it knows the answer.

A request may ask for an operating point of its own, within what the server allows: `max_loss` takes the cheapest point
that is certified to lose no more, `policy` names a rule, `full_depth` runs every layer. Where each text left, and how
sure the exit was, is said in the headers `x-offramp-exit-layer` and `x-offramp-confidence` (comma-separated, in the
order of the texts, where there are 512 of them or fewer), or in the body, where `details` are asked for. Errors are
JSON: `error` says what is wrong and what to do, `error_type` what kind it is. Where a key is set, it is sent as
`Authorization: Bearer KEY` to everything but `/health`, `/v2/health/…`, this description and the files of the page.
"""


def create_app(service: Service, settings: Settings) -> FastAPI:
    """The application; its lifespan starts and drains the service."""
    answering = Answering(service, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.drain(settings.drain)

    app = FastAPI(
        title="offramp",
        version=__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # where to would be what the client says that we are called
    )
    _add_routes(app, answering)
    app.include_router(open_inference_router(answering))
    free = list(FREE)
    if settings.page:
        wants_key = bool(settings.api_keys)
        app.include_router(page_router(answering, wants_key=wants_key))
        free += ["/", *(f"/page/{name}" for name in page_files(wants_key))]
    for error in (Refused, Overloaded, TooLate, Closing, OfframpError):
        app.add_exception_handler(error, _refused)
    app.add_exception_handler(HTTPException, _http_refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_middleware(Guard, service=service, settings=settings, free=free)
    if settings.cors:
        exposed = ["x-offramp-exit-layer", "x-offramp-confidence", "x-offramp-point", "retry-after"]
        headers = ["authorization", "content-type"]
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors,
            allow_methods=["GET", "POST"],
            allow_headers=headers,
            expose_headers=exposed,
        )
    document(app, (PredictRequest, InferRequest), bool(settings.api_keys), free)
    return app


def _add_routes(app: FastAPI, answering: Answering) -> None:
    service, settings = answering.service, answering.settings

    @app.post(
        "/predict",
        summary="Answer one text, or several",
        response_model=list[Prediction] | list[list[Prediction]] | Detailed,
        responses=errors(408, 413, 415, 422, 429, 503, 504),
        openapi_extra=body_of(PredictRequest),
    )
    async def predict(request: Request) -> Response:
        """The labels of a text with their scores, the best first; of a list, a list of such lists.

        A text of a list that has no answer, such as one that is too long where `truncate` is false, has an empty one;
        `details` say why.
        """
        started = time.perf_counter()
        asked: PredictRequest = parsed(PredictRequest, await request.body())
        texts, alone = texts_of(asked.inputs, settings.max_inputs, answering.wants_pairs)
        answers = await answering.answer(texts, asked)
        found: Any = [predictions(answer, answering.labels, asked.raw_scores) for answer in answers]
        found = found[0] if alone else found
        took = timings(answers, time.perf_counter() - started)
        if asked.details:
            point = point_said(answers[0].point)
            found = {"predictions": found, "details": [*map(detail, answers)], "point": point, "timings_ms": took}
        return Response(to_json(found), headers=facts(answers, took), media_type="application/json")

    @app.get("/health", summary="Whether the server can answer", responses=errors(503))
    async def health() -> dict[str, str]:
        answering.check_ready()
        return {"status": "ok"}

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(docs_page(app.openapi()), headers=CSP)

    @app.get("/info", summary="The model, its operating points, and the limits of the server")
    async def info() -> dict[str, Any]:
        limits = {name: getattr(settings, name) for name in ("max_inputs", "max_body", "max_requests", "max_queue")}
        return {**service.info(), "limits": {**limits, "deadline": settings.deadline}}

    @app.get(
        "/metrics",
        summary="For Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> Response:
        return Response(service.metrics.text(), headers={"content-type": service.metrics.content_type})


async def _refused(request: Request, error: Exception) -> Response:
    refused = refusal(error)
    assert refused is not None
    return refused.response()


async def _http_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 400:  # FastAPI could not read it at all
        return Refused(422, "the body is no JSON").response()
    why = {404: f"there is nothing at {request.url.path[:100]}", 405: f"{request.method} is not for this path"}
    return Refused(error.status_code, why.get(error.status_code, str(error.detail)), error.headers).response()


async def _invalid(request: Request, error: Exception) -> Response:
    """A body that FastAPI read: where it is wrong, and how, without what was sent."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return Refused(422, f"{place}: {first['msg']}"[:500]).response()
