"""Predict a file of many rows and watch the memory: it must stay flat.

    OMP_NUM_THREADS=1 python benchmarks/predict_memory.py --rows 1000000 --out benchmarks/results/predict_memory.json

The model is a BERT of 2 layers, 32 wide, with random weights: small, so that reading, encoding and writing show. Noted
is the memory that the operating system says the process holds (RSS), once a second, and how much is written by then.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import BertConfig
from transformers.utils import logging as transformers_logging

import offramp
from offramp.models import MultiExitConfig, MultiExitForSequenceClassification

WORDS = [f"word{i}" for i in range(2000)]
POINTS = 200
"""Most points of the curve that are kept."""


def make_model(folder: Path) -> None:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    backbone = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,  # so that exits have opinions
    )
    torch.manual_seed(0)
    transformers_logging.disable_progress_bar()
    MultiExitForSequenceClassification(MultiExitConfig(backbone_config=backbone, num_labels=2)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")


def make_data(path: Path, rows: int) -> None:
    """Texts of 3 to 40 words."""
    draw = random.Random(0)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text"])
        writer.writerows([i, " ".join(draw.choices(WORDS, k=draw.randint(3, 40)))] for i in range(rows))


def megabytes(process: int) -> float | None:
    """What the process holds in memory; None once it has ended."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def watch(command: list[str], out: Path) -> tuple[float, list[tuple[float, int, float]]]:
    """Run a command: its seconds, and (seconds, bytes written, MB) once a second."""
    started = time.monotonic()
    curve = []
    with subprocess.Popen(command) as running:
        while running.poll() is None:
            if (held := megabytes(running.pid)) and out.is_file():
                curve.append((time.monotonic() - started, out.stat().st_size, held))
            time.sleep(1)
    if running.returncode:
        sys.exit(f"{' '.join(command)} ended with {running.returncode}")
    return time.monotonic() - started, curve


def measure(rows: int, out_format: str, policy: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        model, data, out = Path(scratch) / "model", Path(scratch) / "rows.csv", Path(scratch) / f"answers.{out_format}"
        make_model(model)
        make_data(data, rows)
        command = [sys.executable, "-m", "offramp", "predict", str(model), str(data), "--policy", policy]
        seconds, curve = watch([*command, "--out", str(out), "--keep", "id", "--device", "cpu"], out)
        size = out.stat().st_size
        input_size = data.stat().st_size
    shares = [(second, written / size, held) for second, written, held in curve]

    def held_at(share: float) -> float:
        return next((held for _, done, held in shares if done >= share), shares[-1][2])

    after_tenth = [held for _, done, held in shares if done >= 0.1]
    every = max(1, -(-len(shares) // POINTS))
    return {
        "rows": rows,
        "input_mb": round(input_size / 1e6, 1),
        "format": out_format,
        "policy": policy,
        "seconds": round(seconds, 1),
        "rows_per_second": round(rows / seconds),
        "rss_mb": {"10%": round(held_at(0.1), 1), "50%": round(held_at(0.5), 1), "100%": round(held_at(1.0), 1)},
        "growth_after_10%_mb": round(max(after_tenth) - after_tenth[0], 1),
        "curve": [
            {"seconds": round(second, 1), "share": round(done, 4), "rss_mb": round(held, 1)}
            for second, done, held in shares[::every]
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--format", default="csv", choices=("jsonl", "csv", "tsv", "parquet"))
    parser.add_argument("--policy", default="entropy(0.3)", help="some rows leave after layer 1")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    measured = measure(arguments.rows, arguments.format, arguments.policy)
    measured["machine"] = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)),
        "system": platform.system(),
    }
    measured["versions"] = {
        "offramp": offramp.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    print({key: value for key, value in measured.items() if key != "curve"})


if __name__ == "__main__":
    main()
