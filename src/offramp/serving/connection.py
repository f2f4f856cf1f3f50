"""One connection: a client that is slow, or sends no end of headers, is not waited for."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from offramp.serving.refusals import REFUSED, Refused

MOST_HEADERS = 64 * 2**10
"""Bytes before the body, and after it: a body in chunks may have headers there, too."""
GRACE = 0.05
"""Seconds that an idle connection has when the server stops: its next request may be on its way already."""


class Connection(HttpToolsProtocol):
    """uvicorn's connection with limits of time and of headers: made by `connection_with`."""

    read_timeout = 30.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._in_headers = False
        self._in_message = False
        self._in_body = False
        """Whether any of what has just come was body."""
        self._headers_read = 0
        self._last = False

    # A request must have come in within the time, from the first byte to the last.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers, self._in_message, self._headers_read = True, True, 0
        if self._reading is None:
            self._expect()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_message = False
        self._reading = _stopped(self._reading)

    def on_body(self, body: bytes) -> None:
        self._in_body, self._headers_read = True, 0
        super().on_body(body)

    def data_received(self, data: bytes) -> None:
        self._in_body = False
        super().data_received(data)
        if self._in_message and not self._in_body and not self.transport.is_closing():
            self._headers_read += len(data)
            if self._headers_read > MOST_HEADERS:
                self._let_go(Refused(431, f"the headers are longer than {MOST_HEADERS:,} bytes"))

    def on_headers_complete(self) -> None:
        self._in_headers = False
        super().on_headers_complete()
        if self._last:
            self.cycle.keep_alive = False

    def _expect(self) -> None:
        self._reading = self.loop.call_later(self.read_timeout, self._too_slow)

    def _too_slow(self) -> None:
        self._reading = None
        if self.transport.is_closing():
            return
        if self.pipeline:  # it is we who do not read
            self._expect()
        else:
            self._let_go(Refused(408, f"the request did not come in within {self.read_timeout:g} seconds"))

    # An answer must go out within the same time.

    def pause_writing(self) -> None:
        super().pause_writing()
        _stopped(self._writing)
        self._writing = self.loop.call_later(self.read_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._writing = _stopped(self._writing)

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():  # nobody reads it: to close would be to wait
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def connection_lost(self, exc: Exception | None) -> None:
        self._reading, self._writing = _stopped(self._reading), _stopped(self._writing)
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """What was sent before the server stops is answered, also if it has not been read yet."""
        if self._last:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()
            return
        self._last = True
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(GRACE, self.shutdown)
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        self._refuse(Refused(400, msg))

    def _unsupported_upgrade_warning(self) -> None:
        """It is answered as if it had asked for no other protocol: nothing that an operator could mend."""

    def _let_go(self, refused: Refused) -> None:
        """Say why, unless an answer is on its way or was given already."""
        if self._in_headers or (self.cycle is not None and not self.cycle.response_started):
            self._refuse(refused)
        else:
            self.transport.close()

    def _refuse(self, refused: Refused) -> None:
        """An answer without the application: it does not know of the request, or is waiting for it."""
        if self.scope is not None:
            self.scope["state"][REFUSED] = refused.status
        content = refused.content
        headers = f"content-type: application/json\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[refused.status] + headers.encode() + content)
        self.transport.close()


def connection_with(read_timeout: float) -> type[Connection]:
    """A class, as uvicorn wants it, of connections with this limit."""
    return type("Connection", (Connection,), {"read_timeout": read_timeout})


def _stopped(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None
