"""The server process: a socket, a service, an application, and a clean end."""

from __future__ import annotations

import errno
import logging
import signal
import socket
from collections.abc import Callable

import uvicorn

from offramp.errors import OfframpError
from offramp.serving.app import create_app
from offramp.serving.connection import connection_with
from offramp.serving.service import Service
from offramp.serving.settings import Settings

logger = logging.getLogger(__name__)

BACKLOG = 2048
"""Connections that may wait to be taken."""


def run(settings: Settings, on_ready: Callable[[str], None] = lambda where: None) -> None:
    """Serve until SIGTERM or Ctrl-C; then finish what was accepted.

    `on_ready` is told the address once the server listens.
    """
    listener = bound(settings.host, settings.port)  # a port that is taken is told before a model is loaded
    with listener:
        service = service_of(settings)
        service.warm_up()  # before uvicorn starts, which would tell of a failure in its own way
        address = address_of(*listener.getsockname()[:2])
        server = _Server(config_of(settings, service), lambda: on_ready(address))
        # uvicorn raises the signal again once it is done, which would be an end by a signal: it is a clean one.
        before = signal.signal(signal.SIGTERM, lambda number, frame: None)
        try:
            server.run([listener])
        except KeyboardInterrupt:
            pass
        finally:
            signal.signal(signal.SIGTERM, before)


def service_of(settings: Settings) -> Service:
    """The service of some settings."""
    names = ("policy", "device", "precision", "backend", "threads", "max_length", "max_batch_tokens", "max_queue")
    how = {name: getattr(settings, name) for name in (*names, "audit", "allow", "name")}
    return Service(settings.model, **how)


def config_of(settings: Settings, service: Service) -> uvicorn.Config:
    """How uvicorn runs the application."""
    return uvicorn.Config(
        create_app(service, settings),
        host=settings.host,
        port=settings.port,
        http=connection_with(settings.read_timeout),
        ws="none",
        lifespan="on",
        backlog=BACKLOG,
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=settings.keep_alive,  # type: ignore[arg-type]
        timeout_graceful_shutdown=settings.drain,  # type: ignore[arg-type]
    )


def address_of(host: str, port: int) -> str:
    """As it is typed into a browser."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def bound(host: str, port: int) -> socket.socket:
    """A socket at an address; it does not listen yet."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise OfframpError(f"--host {host}: there is no such address ({error.strerror})") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a server that was killed can start again
        listener.bind(address)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise OfframpError(f"--host {host}: this machine has no such address") from error
        raise OfframpError(
            f"port {port} of {host} cannot be had ({error.strerror}): give another with --port"
        ) from error
    listener.setblocking(False)
    return listener


class _Server(uvicorn.Server):
    """Says when it is ready, and when it stops."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.on_ready()
