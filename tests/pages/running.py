"""A page as one shell script: its commands and its Python, in the order in which they stand there."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.pages.home import TRAINED
from tests.pages.reading import ROOT, Block, blocks

NOT_RUN = {
    "pip": "the packages are there already; CI installs the wheel",
    "git": "there is no network",
    "make": "CI runs `make test`, `make quickstart` and `make docs`",
    "docker": "there is no Docker where tests run",
    "torchrun": "tests/training/test_processes.py does, on several processes",
    ".": "the environment is active already",
}
"""Programs that a page's script leaves out, and why. Their lines are not run; the others of the same block are."""

REASONS = {
    "starts a Ray cluster: tests/prediction/test_ray_files.py and tests/serving/test_ray_serve.py do",
    "needs the hub",
    "needs Docker",
    "needs a GPU",
    "needs systemd",
}
"""What a comment above a block (`<!-- not run: … -->`) may say. Every such block is still read by the command."""

SMALLER = (
    (r"^offramp bench bert-base", "offramp bench tiny"),
    (r"(^offramp bench [^-]*)((?!.*--seconds).*)$", r"\1--seconds 60 --batch-sizes 1 \2"),
    (r"--seconds \d+", "--seconds 1"),
    (r"--batch-sizes [\d,]+", "--batch-sizes 1"),
    (r"reviews\.csv 5000", "reviews.csv 2000"),
    (r"(^offramp pretrain (?!.*--resume).*?)( +#.*)?$", r"\1 --steps 2 --batch-size 4 --length 16 --no-compile"),
    (r"(^offramp pretrain (?!.*--(resume|start)).*)$", r"\1 --layers 6 --width 32 --positions 32"),
    (r"--vocabulary-size \d+", "--vocabulary-size 40"),
    (r"(?<=layers )(6|12)\b(?=.*--recipe plain)", "3"),
    (r"--max-length (64|128|384)\b", "--max-length 32"),
    (r"--stride 128\b", "--stride 8"),
)
"""What takes long is made small."""

SERVER = r"(?P<variables>(\w+=\S+ )*)offramp serve (?P<rest>.*)"


@dataclass(frozen=True)
class Ran:
    """How a page's script ended, and what its Python printed."""

    status: int
    printed: str
    """All of it, with every command."""
    of_python: list[str]


@contextmanager
def fork_server(folder: Path) -> Iterator[Path]:
    """Programs `offramp` and `python` in a folder, which answer in a moment."""
    programs = folder / "bin"
    programs.mkdir()
    for name in ("offramp", "python"):
        client = ROOT / "tests" / "pages" / "fork_client.py"
        (programs / name).write_text(f"#!{sys.executable} -ISS\n{client.read_text(encoding='utf-8')}")
        (programs / name).chmod(0o755)
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "tests.pages.fork_server", str(folder)]
    server = subprocess.Popen(command, cwd=ROOT, env=variables, start_new_session=True)
    try:
        while not all((folder / door).exists() for door in ("bare", "ready")):
            assert server.poll() is None, "the fork server did not start"
            time.sleep(0.1)
        yield folder
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def run_page(document: str, home: Path, server: Path) -> Ran:
    """Run a page in a folder that has what it speaks of, and nothing of what it makes."""
    listed = blocks(document)
    models_that_are_there(listed, home)
    door = "bare" if own_source(listed, home) else "ready"
    variables = {**os.environ, "FORK_SERVER": str(server / door), "OFFRAMP_SERVE_PORT": str(free_port())}
    variables |= {"COLUMNS": "100", "HF_HUB_OFFLINE": "1", "XDG_CACHE_HOME": str(server / "cache")}
    variables |= {"PYTHONPATH": str(home / "src"), "PATH": f"{server / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    text = script(listed, home, int(variables["OFFRAMP_SERVE_PORT"]))
    done = subprocess.run(
        ["bash", "-c", text], cwd=home, env=variables, stdout=-1, stderr=-2, text=True, timeout=300, check=False
    )
    printed = [file.read_text() for file in sorted(home.glob(".printed-*"))]
    return Ran(done.returncode, done.stdout, printed)


def script(listed: list[Block], home: Path, port: int) -> str:
    """What bash is given. A server runs in the background until the next one, or the end."""
    lines = [f"set -e -o pipefail\n{SHELL}\ntrap stop EXIT"]
    for number, block in enumerate(runnable(listed)):
        if block.language == "python":
            lines.append(f"python - > .printed-{number:02} <<'END_OF_BLOCK'\n{block.text}END_OF_BLOCK")
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            lines.append(f"echo {quoted(f'$ {line}')}")
            lines.append(as_run(line, port))
    return "\n".join([*lines, "stop", "trap - EXIT"])


SHELL = """
curl() { command curl --silent --show-error --fail-with-body "$@"; }
stop() { if [ -n "$server" ]; then kill $server; wait $server; server=; fi; }
ready() {
  until command curl -sf localhost:$1/health > health; do kill -0 $server || return 1; sleep 0.1; done
}
"""


def as_run(line: str, port: int) -> str:
    """One line of a page as it is run."""
    words = line.split()
    if words and words[0] in NOT_RUN:
        return f": not run, {quoted(NOT_RUN[words[0]])}"
    for pattern, smaller in SMALLER:
        line = re.sub(pattern, smaller, line)
    if serve := re.match(SERVER, line):
        return f"stop\n{serve['variables']}offramp serve {serve['rest']} & server=$!\nready {port}"
    return line.replace("localhost:8000", f"localhost:{port}")


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def runnable(listed: list[Block]) -> list[Block]:
    """The blocks that a page's script is made of: not output, not files, not what is marked."""
    return [block for block in listed if block.language in ("sh", "python") and not block.reason and not block.title]


def models_that_are_there(listed: list[Block], home: Path) -> None:
    """Under every name in runs/ that the page uses without making it, the model that is there from the beginning."""
    text = "\n".join(block.text for block in runnable(listed))
    made = set(re.findall(r"--out (runs/[\w-]+)", text)) | set(re.findall(r"offramp fold \S+ (runs/[\w-]+)", text))
    for name in set(re.findall(r"\bruns/[\w-]+", text)) - made:
        shutil.copytree(home / TRAINED, home / name)


def own_source(listed: list[Block], home: Path) -> bool:
    """Write the files that the page shows, into a copy of the package where they belong there."""
    files = [block for block in listed if block.title.startswith("src/")]
    if files:
        shutil.copytree(ROOT / "src" / "offramp", home / "src" / "offramp", copy_function=os.symlink)
    for block in files:
        path = home / block.title
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        path.unlink(missing_ok=True)
        path.write_text(before + block.text, encoding="utf-8")
    return bool(files)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
