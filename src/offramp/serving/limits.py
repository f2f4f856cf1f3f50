"""The guard in front of the application: who is let in, how much they may send, and what becomes of those who leave."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
import traceback
from collections.abc import Collection
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offramp.serving.refusals import REFUSED, Refused, outcome, retry_after
from offramp.serving.service import Service
from offramp.serving.settings import Settings

logger = logging.getLogger(__name__)
access = logging.getLogger("offramp.access")

READ_ON = 32 * 2**20
"""Bytes of a body that is too large that are read all the same: most clients listen only once they have sent all."""
MOST_HELD = 256 * 2**20
"""Bytes of bodies that are held at a time, of all requests; more only where a single one may have more."""
JSON = b"application/json"


class Left(Exception):
    """The client is gone."""


class Guard:
    """Checks the key, reads the body within its limits, and cancels a request whose client has left.

    Args:
        app: what is guarded.
        service: whose metrics count requests.
        free: paths that need no key.
    """

    def __init__(self, app: ASGIApp, service: Service, settings: Settings, free: Collection[str]) -> None:
        self.app = app
        self.service = service
        self.settings = settings
        self.free = frozenset(free)
        self.keys = [_digest(key.encode()) for key in settings.api_keys]
        self.at_work = 0
        self.held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._answer(scope, receive, sent)
        except Left:
            # Its connection may have refused it; else 499, as proxies log it: nobody is there to see a status.
            status = scope.get("state", {}).get(REFUSED, 499)
        except Refused as refused:
            await refused.response()(scope, receive, sent)
        except asyncio.CancelledError:  # it took longer than the server waits before it stops
            if not status:
                await Refused(503, "the server is shutting down").response()(scope, receive, sent)
        except Exception as error:
            # The frames and the kind of error, not its message: that may hold a text.
            where = "".join(traceback.format_tb(error.__traceback__))
            logger.error(f"{scope['method']} {_shown(scope['path'])} failed: {type(error).__name__}\n{where}")
            if not status:
                await Refused(500, "the server failed; its log says where").response()(scope, receive, sent)
        finally:
            self._count(scope, status, time.perf_counter() - started)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        if scope["method"] == "POST":
            self.service.metrics.count_request("cancelled" if status in (0, 499) else outcome(status))
        if self.settings.access_log:
            access.info(f"{scope['method']} {_shown(scope['path'])} {status} {1000 * seconds:.1f} ms")

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if self.keys and scope["path"] not in self.free:
            self._check_key(headers.get(b"authorization", b""))
        body = await self._read(headers, receive)
        asks = scope["method"] == "POST"  # a busy server still says that it is well
        if asks and self.at_work >= self.settings.max_requests:
            raise Refused(429, f"{self.at_work} requests are being answered: try again later", retry_after(1))
        if body and headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != JSON:
            raise Refused(415, "the body is to be JSON: send Content-Type: application/json")
        if body and headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
            raise Refused(415, "the body is not to be compressed: send it without Content-Encoding")
        self.at_work += asks
        self.held += len(body)
        # HEAD is GET, of whose answer the server sends no body.
        asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        try:
            await self._watched(asked, body, receive, send)
        finally:
            self.at_work -= asks
            self.held -= len(body)

    def _check_key(self, authorization: bytes) -> None:
        scheme, _, key = authorization.partition(b" ")
        given = _digest(key.strip())
        # Of equal length, and all of them: the time it takes says nothing about which is nearly right.
        right = [hmac.compare_digest(given, known) for known in self.keys]
        if scheme.lower() == b"bearer" and any(right):
            return
        why = "the API key is wrong" if authorization else "an API key is needed: send Authorization: Bearer KEY"
        raise Refused(401, why, {"www-authenticate": "Bearer"})

    async def _read(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """The whole body, if it is within the limits; what is too large is read on for a while, and let go."""
        announced = int(headers.get(b"content-length", b"0"))  # digits: the HTTP parser has seen to it
        limit = self.settings.max_body
        most = max(MOST_HELD, limit)
        large = Refused(413, f"the body is larger than {limit:,} bytes: send fewer texts at a time")
        if announced > limit + READ_ON:
            raise self._closing(large)
        parts: list[bytes] = []
        size, kept = 0, 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Left
                part = message.get("body", b"")
                size += len(part)
                if size > limit + READ_ON:
                    raise self._closing(large)
                if size > limit:
                    parts.clear()
                    self.held, kept = self.held - kept, 0
                else:
                    parts.append(part)
                    self.held += len(part)
                    kept += len(part)
                    if self.held > most:
                        raise self._closing(Refused(429, "too much is being sent: try again later", retry_after(1)))
                if not message.get("more_body", False):
                    break
        finally:
            self.held -= kept
        if size > limit:
            raise large
        return b"".join(parts)

    @staticmethod
    def _closing(refused: Refused) -> Refused:
        """What is still being sent is not read: the connection is of no more use."""
        refused.headers["connection"] = "close"
        return refused

    async def _watched(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Run the application; when the client leaves before it has its answer, cancel it."""
        task = asyncio.current_task()
        assert task is not None
        read = answered = left = False

        async def given() -> Message:
            nonlocal read
            if read:
                return await asyncio.shield(watch)
            read = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def sent(message: Message) -> None:
            nonlocal answered
            answered = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        def gone(watch: asyncio.Future[Any]) -> None:
            nonlocal left
            if not watch.cancelled() and not answered:
                left = True
                task.cancel()

        watch = asyncio.ensure_future(receive())
        watch.add_done_callback(gone)
        try:
            await self.app(scope, given, sent)
        except asyncio.CancelledError:
            if left:
                raise Left from None
            raise
        finally:
            watch.cancel()


def _shown(path: str) -> str:
    """A path in a line of a log: what it holds in the way of line ends and the like is shown, and not made."""
    return repr(path)[1:-1]


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
