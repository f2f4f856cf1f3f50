"""What an operator can set: where to listen, what is allowed, and how much of everything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from offramp.errors import OfframpError
from offramp.serving.operating_points import ALL

ENGINES = ("local", "ray")
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Settings:
    """Of a server; the command line's options, and their environment variables, have the same names."""

    model: str
    name: str | None = None
    """In /v2/models/{name}; default: the folder's."""
    host: str = "127.0.0.1"
    port: int = 8000
    policy: str | None = None
    """Where a request asks for nothing; default: the model's own, or full depth."""
    allow: tuple[str, ...] = ALL
    """What a request may ask for."""
    audit: float = 0.01
    """Share of the answers that are compared with full depth's."""
    device: str = "auto"
    precision: str = "auto"
    backend: str = "auto"
    threads: int | None = None
    max_length: int | None = None
    max_batch_tokens: int = 4096
    max_queue: int = 1024
    """Texts that may wait."""
    max_inputs: int = 256
    """Texts of one request."""
    max_body: int = 2 * 2**20
    """Bytes of one request."""
    max_requests: int = 512
    """At a time."""
    deadline: float = 30.0
    """Seconds until a request is given up; it may ask for fewer."""
    read_timeout: float = 30.0
    """Seconds in which a request must have come in, or an answer have gone out."""
    keep_alive: float = 75.0
    """Seconds that an idle connection is kept."""
    drain: float = 30.0
    """Seconds for what was accepted, once the server is told to stop."""
    api_keys: tuple[str, ...] = ()
    """Any of them is good; none: everybody is let in."""
    cors: tuple[str, ...] = ()
    """Origins whose pages may ask; none: a browser lets only our own."""
    page: bool = True
    access_log: bool = False
    engine: str = "local"
    min_replicas: int = 1
    """With Ray."""
    max_replicas: int = 2

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise OfframpError(f"engine {self.engine!r}: use {' or '.join(ENGINES)}")
        if self.name is not None and "/" in self.name:
            raise OfframpError(f"a model named {self.name!r} has no place in /v2/models/…: give a --name without a /")
        if unknown := sorted(set(self.allow) - set(ALL)):
            raise OfframpError(f"a request cannot be allowed {unknown[0]!r}: use {', '.join(ALL)}, or none")
        if not 0 <= self.audit <= 1:
            raise OfframpError(f"an audit of {self.audit:g}: expected a share between 0 and 1, such as 0.01")
        if self.max_inputs > self.max_queue:
            raise OfframpError(
                f"a request may hold {self.max_inputs} texts, but {self.max_queue} may wait: give --max-queue as many"
            )
        if self.max_replicas < self.min_replicas:
            raise OfframpError(f"at most {self.max_replicas} replicas, but at least {self.min_replicas}")
        for key in self.api_keys:
            if not key or not key.isascii() or not key.isprintable() or " " in key:
                raise OfframpError("an API key is one word of printable ASCII: it is sent in a header")

    @property
    def open_to_others(self) -> bool:
        """Whether other machines can come in, and need no key."""
        return self.host not in LOOPBACK and not self.api_keys


def read_keys(keys: list[str], file: Path | None) -> tuple[str, ...]:
    """Those given and those of a file, one a line; a secret that is mounted as a file is never an argument."""
    if file is None:
        return tuple(keys)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OfframpError(f"{file}: the API keys cannot be read ({type(error).__name__})") from error
    found = [line.strip() for line in lines if line.strip()]
    if not found:
        raise OfframpError(f"{file} holds no API key: write one a line")
    return (*keys, *found)


def names_of(given: str) -> tuple[str, ...]:
    """A list as it is typed, `a,b`; `none` is an empty one."""
    return () if given.strip() == "none" else tuple(name.strip() for name in given.split(",") if name.strip())
