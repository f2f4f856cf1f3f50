"""What early exits give under load: real servers on loopback, clients in another process, all in one run.

    python benchmarks/serving.py --json benchmarks/results/serving_cpu.json
    python benchmarks/serving.py --only soak --json benchmarks/results/serving_cpu.json

BERT-base with random weights and an exit after each layer; texts of 26 tokens on average; scripted exits after 5.1 of
12 layers on average, which are really computed, asked and answered over HTTP. Full depth is the same server, asked for
`full_depth`. The plain server is FastAPI around transformers' pipeline, in the faster of two ways to write it. Servers
and clients share the cores. A ratio is the median over rounds, in which the contestants take turns; those whose turn it
is not are idle. Half load is half of what each can do, at random times. The soak posts 100,000 requests to a small
model, compares each answer with the engine's, and watches the server's memory. Measures add up in the file: one of the
same name is replaced.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from engine import Measure, write
from predict_memory import megabytes
from transformers import BertForSequenceClassification, BertTokenizer
from transformers.utils import logging as transformers_logging

from offramp.bench.machine import about_machine
from offramp.bench.workload import FEWEST_TOKENS, MEAN_TOKENS, MOST_TOKENS, SHAPES, SPREAD, model_of, scripted_exits
from offramp.engine import Engine
from offramp.engine.backends import choose

HERE = Path(__file__).parent
CLIENTS = 32
SCRIPT = 400_000
"""Rows with a scripted exit: more than a run answers."""
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = 2000
FLAT = 20
"""MB by which memory may grow after the first tenth: the allocator's noise."""
SOAK = 100_000
STYLES = ("threads", "loop")
OURS = ("exits", "full depth")


def texts_of(count: int, words: int, seed: int = 0) -> list[str]:
    """Texts of whole words, as long as `bench` has them."""
    lengths = np.random.default_rng(seed).gamma(SPREAD, MEAN_TOKENS / SPREAD, count)
    draw = random.Random(seed)
    tokens = np.rint(lengths).clip(FEWEST_TOKENS, MOST_TOKENS).astype(int) - 2  # less [CLS] and [SEP]
    return [" ".join(f"word{draw.randrange(words)}" for _ in range(length)) for length in tokens.tolist()]


def make_folder(folder: Path, shape: str, wild: bool = False) -> int:
    """A model of that shape with a tokenizer; with `wild` weights, exits differ. How many words it knows."""
    model = model_of(SHAPES[shape])
    for parameter in model.parameters():
        if wild and parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    words = model.backbone.vocab_size - len(SPECIAL)
    add_tokenizer(folder, words)
    return words


def add_tokenizer(folder: Path, words: int) -> None:
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *(f"word{i}" for i in range(words))]), encoding="utf-8")
    BertTokenizer.from_pretrained(folder).save_pretrained(folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(*command: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A server process, from when it answers until it has ended."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    with subprocess.Popen([sys.executable, *command], env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(1800):
                if process.poll() is not None:
                    sys.exit(f"{' '.join(command)} ended with {process.returncode}")
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield process
        finally:
            process.terminate()
            process.wait()


@contextmanager
def offramp_server(folder: Path, *options: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    port = free_port()
    command = ("-m", "offramp", "serve", str(folder), "--port", str(port), *options)
    with server(*command, port=port) as process:
        yield port, process


def load(port: int, requests: Path, *options: str | float) -> dict[str, Any]:
    command = [sys.executable, str(HERE / "serving_load.py"), str(port), str(requests), *map(str, options)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    refused = {outcome: count for outcome, count in found["outcomes"].items() if outcome != "answered"}
    if refused or found["unasked_bytes"]:
        sys.exit(f"a load that all should have answered: {found}")
    return found


def measured(name: str, value: float, target: float, compared: str, detail: dict[str, Any]) -> Measure:
    print(f"{value:8.3f}  {target:6.2f}  {name}", flush=True)
    return {
        "measure": name,
        "value": round(value, 4),
        "target": target,
        "detail": {"compared_with": compared, **detail},
    }


class Place:
    """Folders and files of a run."""

    def __init__(self, folder: Path, arguments: argparse.Namespace) -> None:
        self.folder = folder
        self.rounds: int = arguments.rounds
        self.seconds: float = arguments.seconds
        self.warm_up = min(2.0, self.seconds / 5)
        self.model = folder / "model"
        words = make_folder(self.model, arguments.shape)
        depth = SHAPES[arguments.shape].layers
        script = scripted_exits(SCRIPT, depth)
        (self.model / "policy.json").write_text(json.dumps(script.to_json()), encoding="utf-8")
        texts = texts_of(TEXTS, words)
        self.exits = self.requests("exits", [{"inputs": text} for text in texts])
        self.full = self.requests("full", [{"inputs": text, "full_depth": True} for text in texts])
        self.words = words
        layers = script.layers  # type: ignore[attr-defined]
        self.about = {
            "shape": arguments.shape,
            "mean_tokens": round(float(np.mean([len(text.split()) + 2 for text in texts])), 2),
            "mean_layers": round(statistics.fmean(layers), 3),
            "ideal": round(depth / statistics.fmean(layers), 4),
            "clients": CLIENTS,
            "machine": about_machine(choose(model_of(SHAPES["tiny"]), "cpu", "fp32", "torch", os.cpu_count())),
        }

    def requests(self, name: str, bodies: Sequence[Any], expected: Sequence[Any] | None = None) -> Path:
        path = self.folder / f"{name}.json"
        each = zip(bodies, expected or [None] * len(bodies), strict=True)
        path.write_text(json.dumps([{"body": body, "expected": right} for body, right in each]), encoding="utf-8")
        return path

    def saturate(self, port: int, requests: Path) -> dict[str, Any]:
        seconds = self.seconds + self.warm_up
        return load(port, requests, "--clients", CLIENTS, "--seconds", seconds, "--warm-up", self.warm_up)

    def at_rate(self, port: int, requests: Path, rate: float) -> dict[str, Any]:
        seconds = self.seconds + self.warm_up
        return load(port, requests, "--rate", rate, "--seconds", seconds, "--warm-up", self.warm_up)


@contextmanager
def plain_servers(place: Place) -> Iterator[dict[str, int]]:
    """FastAPI around a pipeline with a model of the same shape, written in two ways: the port of each."""
    folder = place.folder / "plain"
    torch.manual_seed(0)
    BertForSequenceClassification(SHAPES[place.about["shape"]].config()).save_pretrained(folder)
    add_tokenizer(folder, place.words)
    with ExitStack() as servers:
        ports = {f"plain, {style}": free_port() for style in STYLES}
        for style, port in zip(STYLES, ports.values(), strict=True):
            command = (str(HERE / "serving_plain.py"), str(folder), str(port), style)
            servers.enter_context(server(*command, port=port))
        yield ports


def under_load(place: Place, precision: str, plain: dict[str, int]) -> list[Measure]:
    """All contestants at saturation, in turns; and our server at half load."""
    with offramp_server(place.model, "--precision", precision, "--backend", "onnx") as (port, _):
        contestants = {"exits": (port, place.exits), "full depth": (port, place.full)}
        contestants |= {name: (other, place.exits) for name, other in plain.items()}
        rates: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(place.rounds):
            for name, (where, requests) in contestants.items():
                rates[name].append(place.saturate(where, requests)["per_second"])
        half = {name: statistics.median(rates[name]) / 2 for name in OURS}
        latency: dict[str, list[dict[str, float]]] = {name: [] for name in OURS}
        for _ in range(place.rounds):
            for name in OURS:
                latency[name].append(place.at_rate(*contestants[name], half[name])["latency_ms"])
    best = max(plain, key=lambda name: statistics.median(rates[name]))
    detail = {"precision": precision, "rounds": place.rounds, "per_second": rates, **place.about}
    waits = {"rate": {name: round(rate, 2) for name, rate in half.items()}, "latency_ms": latency}
    return [
        measured(
            f"{precision}: throughput at saturation, with exits against full depth",
            median_ratio(rates["exits"], rates["full depth"]),
            1.7,
            "at least",
            detail,
        ),
        measured(
            f"{precision}: throughput with exits against FastAPI around a pipeline, {CLIENTS} clients",
            median_ratio(rates["exits"], rates[best]),
            4,
            "at least",
            detail | {"against": best},
        ),
        measured(
            f"{precision}: p50 latency at half load, share of full depth's",
            median_ratio(*([turn["p50"] for turn in latency[name]] for name in OURS)),
            0.6,
            "at most",
            detail | waits,
        ),
    ]


def median_ratio(ones: Sequence[float], others: Sequence[float]) -> float:
    """Over rounds."""
    return statistics.median(one / other for one, other in zip(ones, others, strict=True))


def soak(place: Place, requests: int) -> list[Measure]:
    """Many requests to a small model: every answer the engine's, none missing, none twice, and memory flat."""
    folder = place.folder / "small"
    words = make_folder(folder, "tiny", wild=True)
    texts = texts_of(TEXTS, words, seed=1)
    sure = [answer.score or 0.0 for answer in Engine(str(folder), "fixed(1)", "cpu", "fp32", "torch", threads=1)(texts)]
    policy = f"confidence({statistics.median(sure):.6f})"
    answers = Engine(str(folder), policy, "cpu", "fp32", "torch", threads=1)(texts)
    expected = [{"label": answer.label, "score": answer.score} for answer in answers]
    file = place.requests("soak", [{"inputs": text} for text in texts], expected)
    with offramp_server(folder, "--policy", policy, "--threads", "1", "--backend", "torch") as (port, process):
        load(port, file, "--clients", CLIENTS, "--requests", 200)
        command = [sys.executable, str(HERE / "serving_load.py"), str(port), str(file), "--requests", str(requests)]
        curve: list[tuple[float, float]] = []
        with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
            while client.poll() is None:
                curve.append((counted(port, "offramp_requests_total", "ok"), megabytes(process.pid) or 0.0))
                time.sleep(0.5)
            assert client.stdout is not None
            found = json.loads(client.stdout.read())
        by_server = counted(port, "offramp_requests_total", "ok") - 200
    wrong = requests - found["outcomes"].get("answered", 0) + abs(by_server - requests) + bool(found["unasked_bytes"])
    later = [held for done, held in curve if done >= 200 + requests / 10]
    growth = max(later) - later[0]
    exits = Counter(answer.exit_layer for answer in answers)
    detail = {
        "client": found,
        "answered_by_server": by_server,
        "policy": policy,
        "exits_of_the_texts": {str(layer): count for layer, count in sorted(exits.items())},
        "rss_mb": [round(held, 1) for _, held in curve[:: max(1, len(curve) // 20)]],
        "machine": place.about["machine"],
    }
    return [
        measured(f"{requests:,} requests: lost, wrong or answered twice", wrong, 0, "at most", detail),
        measured(f"{requests:,} requests: memory growth after the first tenth, MB", growth, FLAT, "at most", detail),
    ]


def counted(port: int, name: str, label: str) -> float:
    """A counter of a server."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f'{name}{{outcome="{label}"}}'))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=tuple(SHAPES), default="bert-base")
    parser.add_argument("--precisions", default="fp32,int8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="of a contestant's turn")
    parser.add_argument("--requests", type=int, default=SOAK, help="of the soak")
    parser.add_argument("--only", choices=("load", "soak"))
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    transformers_logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), arguments)
        measures: list[Measure] = []
        if arguments.only != "soak":
            with plain_servers(place) as plain:
                for precision in arguments.precisions.split(","):
                    measures += under_load(place, precision, plain)
        if arguments.only != "load":
            measures += soak(place, arguments.requests)
    write(measures, arguments.json)


if __name__ == "__main__":
    main()
