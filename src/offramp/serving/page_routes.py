"""The page at `/`: its files, one text's way through the exits, and what the server is doing now."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from offramp.serving.page_facts import about, traced
from offramp.serving.page_points import points_shown
from offramp.serving.refusals import Refused

if TYPE_CHECKING:
    from offramp.serving.answering import Answering

INDEX = "index.html"
KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
"""What a file of the page is, by the end of its name."""
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
"""Nothing from elsewhere, nothing inline, nothing framed: a text or a label can be shown, never run."""
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # asked about each time by its ETag: an update of the server is seen at once
}
LIVE = {"Cache-Control": "no-store"}
PATIENCE = 20.0
"""Seconds that a reader waits for an answer."""


class Typed(BaseModel):
    """What was typed into the page."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: str
    second: str | None = None
    point: int | None = None
    """The place on the slider; default: where the server runs."""


@dataclass(frozen=True)
class Asset:
    """A file of the page, as it is sent."""

    content: bytes
    kind: str

    @property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.content).hexdigest()[:20]}"'

    def answer(self, request: Request) -> Response:
        headers = {**HEADERS, "ETag": self.etag}
        known = request.headers.get("if-none-match", "")
        if self.etag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.kind, headers=headers)


def page_router(answering: Answering, wants_key: bool = False) -> APIRouter:
    """The page's routes.

    Its files are to be free, for a browser cannot send a key with them; they say nothing of the model. The page asks
    for a key where the server `wants_key`, and sends it with everything else.
    """
    router = APIRouter(include_in_schema=False)
    service = answering.service
    patience = min(PATIENCE, answering.settings.deadline)

    for name, asset in page_files(wants_key).items():
        path = "/" if name == INDEX else f"/page/{name}"
        router.add_api_route(path, asset.answer)

    @router.get("/page/about")
    async def facts() -> Response:
        return JSONResponse(about(service), headers=LIVE)

    @router.get("/page/stats")
    async def stats() -> Response:
        return JSONResponse(service.stats(), headers=LIVE)

    @router.post("/page/trace")
    async def trace(typed: Typed) -> Response:
        shown = points_shown(service.points)
        if typed.point is not None and not 0 <= typed.point < len(shown.points):
            raise Refused(422, f"point {typed.point}: the slider has {len(shown.points)} places, from 0")
        text = typed.text if typed.second is None else (typed.text, typed.second)
        answering.check_kind([text])
        place = shown.default if typed.point is None else typed.point
        end = time.perf_counter() + patience
        # As any client would: it is counted, and timed.
        [answer] = await service.answer([text], shown.points[place], deadline_s=patience)
        if answer.error is not None:
            raise Refused(422, answer.error)
        said = await service.trace(text, deadline_s=end - time.perf_counter())
        return JSONResponse(traced(service, shown.points, place, answer, said), headers=LIVE)

    return router


def page_files(wants_key: bool) -> dict[str, Asset]:
    """The files of the page by name."""
    found = {}
    house = files("offramp.evaluation").joinpath("page/house.css")  # the look that all pages share
    for file in (house, *files("offramp.serving").joinpath("page").iterdir()):
        if kind := KINDS.get(file.name.rpartition(".")[2]):
            content = file.read_bytes()
            if file.name == INDEX:
                content = content.replace(b"{{key}}", b"wanted" if wants_key else b"none")
            found[file.name] = Asset(content, kind)
    return found
