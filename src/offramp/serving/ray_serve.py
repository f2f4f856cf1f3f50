"""The server on a Ray cluster: replicas that come and go with the traffic, each with the whole of the HTTP application.

    serve run offramp.serving.ray_serve:app_builder model=runs/sst2 max_replicas=4

or, from Python, `serve.run(application(Settings("runs/sst2", max_replicas=4)))`.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import FrameType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from offramp.errors import OfframpError, needs, one_line
from offramp.interop import load
from offramp.ray_cluster import cluster, gpus_wanted, worker_share
from offramp.serving.app import create_app
from offramp.serving.operating_points import OperatingPoints
from offramp.serving.server import address_of, bound, service_of
from offramp.serving.settings import Settings, names_of

NAME = "offramp"
"""Of the application in Ray Serve."""
TARGET = {"CPU": 8, "GPU": 64}
"""Requests that a replica is to have in hand; with more on average, another one is started."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)
SCALING = (
    "target_ongoing_requests",
    "upscale_delay_s",
    "downscale_delay_s",
    "metrics_interval_s",
    "look_back_period_s",
)
"""What Ray Serve can be told about that besides."""


def app_builder(arguments: Mapping[str, Any]) -> Any:
    """For `serve run` and `serve build`: what `Settings` has, and `SCALING`, as text or as it is."""
    scaling = {name: float(value) for name, value in arguments.items() if name in SCALING}
    return application(settings_from({name: arguments[name] for name in arguments if name not in SCALING}), **scaling)


def settings_from(arguments: Mapping[str, Any]) -> Settings:
    """Settings, from what was typed as `name=value`."""
    known = {field.name: field for field in fields(Settings)}
    if unknown := sorted(set(arguments) - set(known)):
        raise OfframpError(f"{unknown[0]!r} is no setting: use {', '.join([*known, *SCALING])}")
    lists = {name for name, field in known.items() if isinstance(field.default, tuple)}
    given = {
        name: names_of(value) if name in lists and isinstance(value, str) else value
        for name, value in arguments.items()
    }
    try:
        return TypeAdapter(Settings).validate_python({"engine": "ray", **given})
    except ValidationError as error:
        first = error.errors()[0]
        raise OfframpError(f"{'.'.join(map(str, first['loc'])) or 'settings'}: {first['msg']}") from error


def application(settings: Settings, **scaling: float) -> Any:
    """What `serve.run` takes: replicas of the server, between `min_replicas` and `max_replicas` of them.

    `scaling` is Ray Serve's autoscaling configuration (see `SCALING`). Every machine must see the model under its path.
    """
    ray, serve = needs("ray", "ray"), needs("ray.serve", "ray")
    gpus = gpus_wanted(ray, settings.device)
    if Path(settings.model).exists():  # replicas start in other folders
        settings = replace(settings, model=str(Path(settings.model).absolute()))
    settings = replace(settings, threads=settings.threads or 1)

    def build() -> Any:
        service = service_of(settings)
        app = create_app(service, settings)
        app.state.service = service
        return app

    class Replica:
        def check_health(self) -> None:
            """A replica that fails here is replaced by a new one."""
            if not self.app.state.service.ready:  # type: ignore[attr-defined]
                raise RuntimeError("the server can answer no more")

    replicas = serve.deployment(
        serve.ingress(build)(Replica),
        name=NAME,
        ray_actor_options={"num_cpus": settings.threads, "num_gpus": gpus},
        max_ongoing_requests=settings.max_requests,
        graceful_shutdown_timeout_s=settings.drain,
        autoscaling_config={
            "min_replicas": settings.min_replicas,
            "max_replicas": settings.max_replicas,
            "target_ongoing_requests": TARGET["GPU" if gpus else "CPU"],
            **scaling,
        },
    )
    return replicas.bind()


def serve_on_ray(settings: Settings, on_ready: Callable[[str], None] | None = None, **scaling: float) -> None:
    """Serve until told to stop (SIGTERM, Ctrl-C); then what was accepted is answered, and the application removed.

    `on_ready` is told the address once there is a replica that answers.
    """
    OperatingPoints(load(settings.model), settings.policy, settings.allow)  # what is wrong is told here, in one line
    with bound(settings.host, settings.port) as free:  # Ray takes no port 0, and tells of one that is taken in pages
        settings = replace(settings, port=free.getsockname()[1])
    stopped = threading.Event()
    before = {kind: signal.getsignal(kind) for kind in SIGNALS}
    with cluster() as ray:
        check_room(ray, settings)
        serve = needs("ray.serve", "ray")
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        # Not before: Ray sets its own, under which SIGTERM is a crash. What waits for Ray ends at once.
        _on_signals(signal.default_int_handler)
        try:
            with told_in_a_line():
                serve.start(http_options=http_options(settings))
            check_address(settings)
            try:
                with told_in_a_line():
                    serve.run(application(settings, **scaling), name=NAME, route_prefix="/")
                _on_signals(lambda *_: stopped.set())
                if on_ready is not None:
                    on_ready(address_of(settings.host, settings.port))
                stopped.wait()
            finally:
                serve.delete(NAME)
        finally:
            for kind, action in before.items():
                signal.signal(kind, action)


def http_options(settings: Settings) -> dict[str, Any]:
    """Of Ray Serve's proxy; it gives up later than our deadline, for our own answer says more."""
    listen = {"host": settings.host, "port": settings.port, "request_timeout_s": settings.deadline + 5}
    return {**listen, "keep_alive_timeout_s": int(settings.keep_alive)}


def check_room(ray: Any, settings: Settings) -> None:
    """Refuse what Ray would wait for without end, and without a word."""
    room = worker_share(ray, settings.device, settings.threads, None).workers
    if settings.min_replicas > room:
        raise OfframpError(
            f"{settings.min_replicas} replicas, but the Ray cluster has room for {room}: "
            f"say --min-replicas {room} or fewer, or fewer --threads"
        )


def check_address(settings: Settings) -> None:
    """Refuse a Ray Serve that was there before, and listens elsewhere: it goes on doing so, and may serve a model."""
    there = needs("ray.serve.context", "ray")._get_global_client().http_config
    if (there.host, there.port) != (settings.host, settings.port):
        raise OfframpError(
            f"Ray Serve runs on this cluster already, at {address_of(there.host, there.port)}: "
            "end it with `serve shutdown`, or add the model to it with `serve run`"
        )


@contextmanager
def told_in_a_line() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise OfframpError(f"Ray Serve could not start it ({one_line(error)})") from error


def _on_signals(action: Callable[[int, FrameType | None], Any]) -> None:
    for kind in SIGNALS:
        signal.signal(kind, action)
