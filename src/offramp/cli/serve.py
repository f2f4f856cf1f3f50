"""`offramp serve`: answers over HTTP."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from offramp.cli.app import app
from offramp.cli.engine_options import Backend, Device, Precision, Threads, option
from offramp.cli.refusal import refuse
from offramp.errors import OfframpError, needs

EXAMPLES = """
Examples:

  offramp serve runs/sst2

  offramp serve runs/sst2 --port 9000 --audit 0.05 --allow max_loss,full_depth

  OFFRAMP_SERVE_API_KEY=secret offramp serve runs/sst2 --host 0.0.0.0

  offramp serve runs/sst2 --engine ray --max-replicas 4

Every option is an environment variable, too: --max-queue is OFFRAMP_SERVE_MAX_QUEUE, and MODEL is OFFRAMP_SERVE_MODEL.
"""
PREFIX = "OFFRAMP_SERVE"


@app.command(epilog=EXAMPLES, context_settings={"auto_envvar_prefix": PREFIX})
def serve(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="Model folder.", envvar=f"{PREFIX}_MODEL", show_envvar=False)],
    host: Annotated[str, option(help="Address to listen at; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    name: Annotated[str | None, option(help="The model's name in /v2; default: the folder's.")] = None,
    policy: Annotated[
        str | None,
        option(help="When to leave; default: the model's own, or else full depth."),
    ] = None,
    allow: Annotated[
        str,
        option(help="What a request may ask for: max_loss, policy, full_depth (with commas between), or none."),
    ] = "max_loss,policy,full_depth",
    audit: Annotated[
        float,
        option(min=0, max=1, help="Share of the answers to compare with full depth's, when idle."),
    ] = 0.01,
    device: Device = "auto",
    precision: Precision = "auto",
    backend: Backend = "auto",
    threads: Threads = None,
    max_length: Annotated[int | None, option(help="Most tokens of a text; default: as trained.")] = None,
    max_batch_tokens: Annotated[int, option(min=1, help="Most tokens that are computed together.")] = 4096,
    max_queue: Annotated[int, option(min=1, help="Texts that may wait; more are refused with 429.")] = 1024,
    max_inputs: Annotated[int, option(min=1, help="Texts of one request; more are refused with 413.")] = 256,
    max_body: Annotated[int, option(min=1, help="Bytes of one request; more are refused with 413.")] = 2 * 2**20,
    max_requests: Annotated[int, option(min=1, help="Requests at a time; more are refused with 429.")] = 512,
    deadline: Annotated[float, option(min=0.001, help="Seconds until a request is given up (504).")] = 30.0,
    read_timeout: Annotated[
        float,
        option(min=0.001, help="Seconds a client has to send a request, or take an answer."),
    ] = 30.0,
    keep_alive: Annotated[float, option(min=0, help="Seconds that an idle connection is kept.")] = 75.0,
    drain: Annotated[
        float,
        option(min=0, help="Seconds to finish what was accepted, on SIGTERM."),
    ] = 30.0,
    api_key: Annotated[
        list[str] | None,
        option(
            help="Key that requests must send; better as a variable or a file: others see arguments.",
        ),
    ] = None,
    api_key_file: Annotated[Path | None, option(help="File with such keys, one a line.")] = None,
    cors: Annotated[str, option(help="Origins whose pages may ask: https://a.example,…; none.")] = "none",
    page: Annotated[bool, option(help="Serve the page at /.")] = True,
    access_log: Annotated[bool, option(help="A line for each request; never its text.")] = False,
    engine: Annotated[str, option(help="local, or ray: replicas on as many machines as Ray has.")] = "local",
    min_replicas: Annotated[int | None, option(min=1, help="With --engine ray; default: 1.")] = None,
    max_replicas: Annotated[int | None, option(min=1, help="With --engine ray; default: 2.")] = None,
) -> None:
    """Answer texts over HTTP: POST /predict, the Open Inference Protocol at /v2, metrics, and a page at /.

    Listens on this machine only, unless told otherwise; what it may be asked is at /docs. On SIGTERM or Ctrl-C it takes
    no more, finishes what it has accepted, and ends.
    """
    for module in ("fastapi", "uvicorn", "httptools", "prometheus_client"):
        needs(module, "serve")
    from offramp.serving.settings import Settings, names_of, read_keys

    for variable in (f"{PREFIX}_API_KEY", f"{PREFIX}_API_KEY_FILE"):
        if not os.environ.get(variable, "set").strip():  # it is taken for none, and nobody would need a key
            raise OfframpError(f"{variable} is set, but blank: give it a value, or unset it")
    if engine != "ray":
        refuse("goes with --engine ray", min_replicas=min_replicas, max_replicas=max_replicas)
    given = {name: value for name, value in context.params.items() if value is not None}
    given |= {"allow": names_of(allow), "cors": names_of(cors), "api_keys": read_keys(api_key or [], api_key_file)}
    settings = Settings(**{name: value for name, value in given.items() if name not in ("api_key", "api_key_file")})
    if settings.open_to_others:
        typer.echo(f"{host}: whoever can reach this machine is let in; set a key with {PREFIX}_API_KEY", err=True)

    def ready(address: str) -> None:
        typer.echo(f"{model}: {address} (what it can be asked: {address}/docs)", err=True)

    if settings.engine == "ray":
        needs("ray.serve", "ray")
        from offramp.serving.ray_serve import serve_on_ray

        serve_on_ray(settings, ready)
        return
    from offramp.serving.server import run

    if access_log:
        logging.getLogger("offramp.access").setLevel(logging.INFO)
    run(settings, ready)
