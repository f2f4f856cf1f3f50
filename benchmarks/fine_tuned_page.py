r"""Write what `offramp add-exits` prints into docs/how-to/fine-tuned.md, from benchmarks/results/fine_tuned.json.

    python benchmarks/fine_tuned_page.py --run --data GLUE --backbone MINILM

first fine-tunes a classifier with transformers alone (MINILM on 8,000 rows of SST-2, one epoch), gives it exits with
5,000 other rows, and checks that its answers at full depth are what they were, to the bit. A few minutes on two cores.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from recipes_page import ROOT

PAGE = ROOT / "docs" / "how-to" / "fine-tuned.md"
RUN = ROOT / "benchmarks" / "results" / "fine_tuned.json"
BLOCK = re.compile(r"^```sh\n(?P<command>offramp add-exits .*?)\n```\n```text\n(?P<printed>.*?)^```\n", re.M | re.S)
LABELS = ("negative", "positive")
FINE_TUNED, OTHERS = slice(0, 8_000), slice(20_000, 25_000)
"""Rows of the shuffled training file: those the classifier learns from, and those the exits do."""
RATE, BATCH, WARMUP = 2e-4, 32, 25


def filled(page: str) -> str:
    """The page with what was printed below its first command."""
    ran = json.loads(RUN.read_text(encoding="utf-8"))
    block = BLOCK.search(page)
    assert block is not None
    assert block["command"] == ran["command"], f"not what was run: {block['command']}"
    return page[: block.start("printed")] + ran["printed"] + page[block.end("printed") :]


def fine_tune(rows: list[dict[str, str]], backbone: str, folder: Path) -> None:
    """A classifier as anybody has one: transformers, and nothing of ours."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(backbone)
    numbers = {name: number for number, name in enumerate(LABELS)}
    model: Any = AutoModelForSequenceClassification.from_pretrained(
        backbone, dtype=torch.float32, id2label=dict(enumerate(LABELS)), label2id=numbers
    )
    steps = len(rows) // BATCH
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE)
    rates = get_linear_schedule_with_warmup(optimiser, WARMUP, steps)
    model.train()
    for step in range(steps):
        part = rows[step * BATCH : (step + 1) * BATCH]
        batch = tokenizer([row["sentence"] for row in part], padding=True, truncation=True, return_tensors="pt")
        model(**batch, labels=torch.tensor([int(row["label"]) for row in part])).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        rates.step()
        optimiser.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def same_to_the_bit(before: Path, after: Path, texts: list[str]) -> bool:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    import offramp

    batch = AutoTokenizer.from_pretrained(before)(texts, padding=True, return_tensors="pt")
    classifier: Any = AutoModelForSequenceClassification.from_pretrained(before, dtype=torch.float32).eval()
    with torch.no_grad():
        return torch.equal(classifier(**batch).logits, offramp.load(after)(**batch).logits)


def run(command: str, data: Path, backbone: str) -> None:
    """Do what the page says, and keep what was printed."""
    with (data / "SST-2" / "train.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    random.Random(0).shuffle(rows)
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        started = time.perf_counter()
        fine_tune(rows[FINE_TUNED], backbone, home / "models" / "sentiment")
        tuned = time.perf_counter()
        with (home / "reviews.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("review", "verdict"))
            writer.writerows((row["sentence"].strip(), LABELS[int(row["label"])]) for row in rows[OTHERS])
        done = subprocess.run(command.split(), cwd=home, capture_output=True, text=True, check=True)
        seconds = {"fine_tune": tuned - started, "add_exits": time.perf_counter() - tuned}
        texts = [row["sentence"] for row in rows[25_000:25_064]]
        found = {
            "command": command,
            "printed": "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines()),
            "cores": os.cpu_count(),
            "seconds": {name: round(value, 1) for name, value in seconds.items()},
            "same_to_the_bit": same_to_the_bit(home / "models" / "sentiment", home / "runs" / "sentiment", texts),
        }
    print(json.dumps(found["seconds"]), found["same_to_the_bit"])
    RUN.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--data", type=Path, help="folder with SST-2 as GLUE has it")
    parser.add_argument("--backbone", help="all-MiniLM-L6-v2, as a folder or hub name")
    arguments = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    if arguments.run:
        command = BLOCK.search(page)
        assert command is not None
        run(command["command"], arguments.data, arguments.backbone)
    PAGE.write_text(filled(page), encoding="utf-8")


if __name__ == "__main__":
    main()
