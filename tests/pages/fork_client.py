"""`offramp` and `python` of a page: hands over to the fork server. Standard library only: it is started often."""

import json
import os
import signal
import socket
import sys
from pathlib import Path


def main() -> int:
    asked = {
        "arguments": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "folder": str(Path.cwd()),
        "variables": dict(os.environ),
    }
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ["FORK_SERVER"])
        socket.send_fds(server, [json.dumps(asked).encode()], [0, 1, 2])
        answers = server.makefile()
        worker = int(answers.readline())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, _: os.kill(worker, received))
        return int(answers.readline() or 1)


if __name__ == "__main__":
    sys.exit(main())
