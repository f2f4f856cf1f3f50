"""A fuzzer over the readers: `python -m tests.fuzz.run --seconds 60 csv config`; without names, over all of them.

Atheris watches which lines of offramp a file reaches and keeps what reaches new ones. Half of the time it changes bytes
of good files, half of the time it draws the documents of the tests. A file that breaks the contract is left in
`.fuzz/NAME`, where the next run begins with it.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
from pathlib import Path

HOME = Path(__file__).parents[2] / ".fuzz"
WAYS = ("bytes", "documents")
WATCHED = [
    *("offramp.tasks", "offramp.interop", "offramp.policies", "offramp.typed_json", "offramp.models.config"),
    *("offramp.calibration.certificate", "offramp.engine.policy_choice", "offramp.evaluation.results"),
    *("offramp.evaluation.trace_base", "offramp.bench.results", "offramp.prediction.part_folder"),
]
"""What reads; to watch all of offramp takes a minute before the first file."""
HANG, MEMORY = 20, 4096
"""Seconds and megabytes that one file may take."""


def main() -> None:
    known = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known.add_argument("names", nargs="*", help="readers; default: all")
    known.add_argument("--seconds", type=int, default=60, help="for each reader")
    known.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = known.parse_args()
    if options.way:
        fuzz(options.names[0], options.way, options.seconds)
        return
    from tests.fuzz.readers import TARGETS

    broken = []
    for name in options.names or TARGETS:
        for way in WAYS:
            log = HOME / name / f"{way}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "tests.fuzz.run", name, "--way", way]
            command += ["--seconds", str(max(1, options.seconds // 2))]
            with log.open("w") as file:
                done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False)
            runs = re.search(r"Done (\d+) runs", log.read_text(errors="replace"))
            print(f"{name}, {way}: {runs[1] + ' files' if runs else 'stopped'}", flush=True)
            if done.returncode:
                broken.append(str(log))
    if broken:
        sys.exit(f"the contract is broken: see {', '.join(broken)}")


def fuzz(name: str, way: str, seconds: int) -> None:
    """One reader in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=WATCHED):
        from tests.fuzz.readers import TARGETS
    import logging

    from hypothesis import HealthCheck, given, settings

    from tests.fuzz.changes import near

    logging.disable(logging.WARNING)
    target = TARGETS[name]
    corpus = HOME / name / way
    corpus.mkdir(parents=True, exist_ok=True)
    seeds = target.seeds() if way == "bytes" else [random.Random(n).randbytes(2**12) for n in range(32)]
    for number, seed in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    one = target.check
    if way == "documents":

        @settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(near(target))
        def drawn(data: bytes) -> None:
            target.check(data)

        one = drawn.hypothesis.fuzz_one_input

    def once(data: bytes) -> None:
        one(data)

    limits = [f"-max_total_time={seconds}", f"-timeout={HANG}", f"-rss_limit_mb={MEMORY}", "-max_len=65536"]
    found = [f"-artifact_prefix={HOME / name}/{way}-"]
    atheris.Setup([sys.argv[0], *limits, *found, str(corpus)], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
