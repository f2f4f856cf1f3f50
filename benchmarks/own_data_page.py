"""Write what the commands of docs/tutorial/own-data.md print into it, from benchmarks/results/own_data.json.

python benchmarks/own_data_page.py --run    runs them all first, in an empty folder: some ten minutes
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from recipes_page import ROOT, with_rows

PAGE = ROOT / "docs" / "tutorial" / "own-data.md"
RUN = ROOT / "benchmarks" / "results" / "own_data.json"
BLOCK = re.compile(r"^```sh\n(?P<commands>.*?)^```\n(?:```text\n(?P<printed>.*?)^```\n)?", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^## \d\. (.*)$", re.MULTILINE)
LONGEST, TOP, END = 44, 27, 4
"""Lines that are shown of what is printed; of more, the first and the last."""
HEALTH = "http://localhost:8000/health"


def filled(page: str) -> str:
    """The page with what each block printed below it, and how long each step took."""
    recorded = json.loads(RUN.read_text(encoding="utf-8"))
    blocks = iter(recorded["blocks"])

    def with_output(block: re.Match[str]) -> str:
        ran = next(blocks)
        assert ran["commands"] == block["commands"], f"not what was run: {block['commands']}"
        shown = "" if block["printed"] is None else f"```text\n{excerpt(ran['printed'])}```\n"
        return f"```sh\n{ran['commands']}```\n{shown}"

    page = BLOCK.sub(with_output, page)
    rows = [f"| {step} | {seconds:.0f} |" for step, seconds in recorded["seconds"].items()]
    return with_rows(page, "step", rows)


def excerpt(printed: str) -> str:
    """All of it, or its beginning and its end; without spaces at the ends of lines."""
    lines = [line.rstrip() for line in printed.splitlines()]
    if len(lines) > LONGEST:
        lines = [*lines[:TOP], "…", *lines[-END:]]
    return "".join(f"{line}\n" for line in lines)


def run(page: str) -> None:
    """Run the page's blocks one after the other, and keep what they print."""
    blocks, seconds, server = [], {}, None
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "examples").symlink_to(ROOT / "examples")
        try:
            for block in BLOCK.finditer(page):
                print(block["commands"], end="", flush=True)
                started = time.perf_counter()
                if block["commands"].startswith("offramp serve"):
                    server = subprocess.Popen(block["commands"].split(), cwd=home)
                    printed = until_healthy()
                else:
                    printed = shell(block["commands"], home)
                blocks.append({"commands": block["commands"], "printed": printed})
                if before := STEP.findall(page[: block.start()]):
                    seconds[before[-1]] = round(seconds.get(before[-1], 0) + time.perf_counter() - started, 1)
        finally:
            if server:
                server.terminate()
                server.wait()
    about = {"cores": os.cpu_count(), "blocks": blocks, "seconds": seconds}
    RUN.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def shell(commands: str, home: str) -> str:
    done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", commands], cwd=home, stdout=-1, stderr=-2, text=True)
    print(done.stdout, flush=True)
    done.check_returncode()
    return done.stdout.replace(f"{Path(home).resolve()}/", "")


def until_healthy() -> str:
    while True:
        try:
            urllib.request.urlopen(HEALTH)
            return ""
        except OSError:
            time.sleep(0.2)


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    if "--run" in sys.argv:
        run(page)
    PAGE.write_text(filled(page), encoding="utf-8")
