"""What is installed, held against what offramp asks for in its own metadata."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING

from offramp.doctor.findings import Finding, better, broken
from offramp.errors import OfframpError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PART = "libraries"
EXTRAS = {
    "onnx": "faster answers on a CPU, int8, offramp export",
    "report": "plots and report.html",
    "data": "data sets of the hub, Parquet files",
    "serve": "offramp serve",
    "ray": "more than one machine",
}
"""What each is for; that of developers is left out."""
TRIED = ("torch", "transformers", "onnxruntime")
"""With much machine code, which may not be made for this machine."""
SECONDS = 120
IMPORTING = "import sys\nfor name in sys.argv[1:]:\n    __import__(name)\n    print(name, flush=True)"


def needed() -> Iterator[Finding]:
    """What offramp cannot do without."""
    from packaging.specifiers import SpecifierSet

    asked = str(metadata.metadata("offramp").json.get("requires_python", ""))
    version = ".".join(map(str, sys.version_info[:3]))
    if not SpecifierSet(asked).contains(version):
        yield broken(PART, "Python", version, f"Python {asked}")
    yield Finding(PART, "offramp", metadata.version("offramp"))
    for one in required():
        yield compared(one)


def extras() -> Iterator[Finding]:
    """What some commands need; a missing one is named once, with what brings it."""
    for extra, purpose in EXTRAS.items():
        asked = list(required(extra))
        missing = [one.name for one in asked if installed(one.name) is None]
        if missing:
            yield better(PART, extra, f"{', '.join(missing)} missing", f"{purpose}: pip install 'offramp[{extra}]'")
            asked = [one for one in asked if one.name not in missing]
        for one in asked:
            yield compared(one)


def triton() -> Iterator[Finding]:
    """It comes with a torch for CUDA."""
    version = installed("triton")
    if version is not None:
        yield Finding(PART, "triton", version)


def compared(one: Requirement) -> Finding:
    version = installed(one.name)
    wish = f"pip install '{one.name}{one.specifier}'"
    if version is None:
        return broken(PART, one.name, "missing", wish)
    if not one.specifier.contains(version, prereleases=True):
        return broken(PART, one.name, f"{version}, and offramp needs {one.specifier}", wish)
    return Finding(PART, one.name, version)


def required(extra: str = "") -> Iterator[Requirement]:
    """Of offramp itself, or what an extra adds to it, on this system."""
    from packaging.requirements import Requirement

    for line in metadata.requires("offramp") or ():
        one = Requirement(line)
        if one.marker is None:
            wanted = not extra
        else:
            wanted = one.marker.evaluate({"extra": extra}) and not (extra and one.marker.evaluate({"extra": ""}))
        if wanted:
            yield one


def installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def loading() -> Iterator[Finding]:
    """Whether they can be imported: a library made for another processor ends the process, so another one tries."""
    for name, said in failures().items():
        yield broken(PART, f"import {name}", said, f"install {name} again, in a version made for this machine")


@lru_cache
def failures() -> dict[str, str]:
    """The first of the libraries that cannot be imported, and what is said of it."""
    present = [name for name in TRIED if find_spec(name) is not None]
    command = [sys.executable, "-c", IMPORTING, *present]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    if done.returncode == 0:
        return {}
    imported = done.stdout.split()
    said = (done.stderr.strip().splitlines() or [f"the process ended with {done.returncode}"])[-1][:200]
    return {next((name for name in present if name not in imported), "torch"): said}


def check_torch() -> None:
    """For what cannot be found out without it."""
    if set(failures()) & {"torch", "transformers"}:
        raise OfframpError("not looked at: torch or transformers cannot be imported")
