"""Runs commands in processes that have imported everything already: for each it is a fork instead of seconds.

`python -m tests.pages.fork_server FOLDER` waits at two sockets: at `ready`, processes have imported offramp, at `bare`
only what it is made of. Each connection brings JSON (arguments, folder, variables) and three open files; it is answered
with the process's number, and with its exit status once it has ended.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import socket
import sys
import traceback
from pathlib import Path

LIBRARIES = (
    "transformers.trainer",
    "matplotlib.pyplot",
    "onnxruntime",
    "onnx",
    "uvicorn",
    "fastapi",
)
OFFRAMP = (
    "offramp.cli.app",
    "offramp.training.run",
    "offramp.evaluation.run",
    "offramp.evaluation.report",
    "offramp.bench.run",
    "offramp.serving.app",
)


def serve(folder: Path) -> None:
    """Until they are killed, both of them."""
    for name in LIBRARIES:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a minder ended
    if os.fork() == 0:
        wait_at(folder / "bare")
    for name in OFFRAMP:
        importlib.import_module(name)
    wait_at(folder / "ready")


def wait_at(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()
        while True:
            caller, _ = door.accept()
            with caller:
                if os.fork() == 0:
                    door.close()
                    mind(caller)


def mind(caller: socket.socket) -> None:
    """Run one command in a child, and tell the caller about it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked, files, _, _ = socket.recv_fds(caller, 1 << 20, 3)
    worker = os.fork()
    if worker == 0:
        caller.close()
        os._exit(work(json.loads(asked), files))
    for file in files:
        os.close(file)
    caller.sendall(f"{worker}\n".encode())
    _, status = os.waitpid(worker, 0)
    caller.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def work(asked: dict[str, object], files: list[int]) -> int:
    """The exit status of `offramp …`, `python file …` or `python - …` in this process."""
    for place, file in enumerate(files):
        os.dup2(file, place)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(str(asked["folder"]))
    os.environ.clear()
    os.environ.update(asked["variables"])  # type: ignore[call-overload]
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    program, *arguments = asked["arguments"]  # type: ignore[misc]
    try:
        if program == "offramp":
            sys.argv = ["offramp", *arguments]
            importlib.import_module("offramp.cli").main()
        elif arguments[0] == "-":
            sys.argv = ["-", *arguments[1:]]
            exec(compile(sys.stdin.read(), "<page>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
