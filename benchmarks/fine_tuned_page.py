r"""Write what `offramp add-exits` and `bench` print into docs/how-to/fine-tuned.md, from results/fine_tuned.json.

    python benchmarks/fine_tuned_page.py --run --data GLUE --backbone MINILM

first fine-tunes a classifier with transformers alone (MINILM on 8,000 rows of SST-2, one epoch), gives it exits with
5,000 other rows, checks that its answers at full depth are what they were, to the bit, and times it on 1,000 more. Some
minutes on two cores.
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
BLOCK = re.compile(r"^```sh\n(?P<command>offramp [^\n]*)\n```\n```text\n(?P<printed>.*?)^```\n", re.M | re.S)
LABELS = ("negative", "positive")
FINE_TUNED, OTHERS, NEW = slice(0, 8_000), slice(20_000, 25_000), slice(25_000, 26_000)
"""Rows of the shuffled training file: what the classifier learns from, what the exits do, and what is timed."""
RATE, BATCH, WARMUP = 2e-4, 32, 25


def filled(page: str) -> str:
    """The page with what was printed below its commands."""
    printed = json.loads(RUN.read_text(encoding="utf-8"))["printed"]
    assert commands(page) == list(printed), f"not what was run: {commands(page)}"
    return BLOCK.sub(lambda block: f"```sh\n{block['command']}\n```\n```text\n{printed[block['command']]}```\n", page)


def commands(page: str) -> list[str]:
    return [block["command"] for block in BLOCK.finditer(page)]


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


def run(page: list[str], data: Path, backbone: str) -> None:
    """Do what the page says, and keep what was printed."""
    with (data / "SST-2" / "train.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    random.Random(0).shuffle(rows)
    seconds, printed = {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        started = time.perf_counter()
        fine_tune(rows[FINE_TUNED], backbone, home / "models" / "sentiment")
        seconds["fine_tune"] = round(time.perf_counter() - started, 1)
        write_reviews(home / "reviews.csv", rows[OTHERS])
        write_reviews(home / "new.csv", rows[NEW])
        for command in page:
            started = time.perf_counter()
            done = subprocess.run(command.split(), cwd=home, capture_output=True, text=True, check=True)
            seconds[command.split()[1]] = round(time.perf_counter() - started, 1)
            printed[command] = "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())
        texts = [row["sentence"] for row in rows[NEW]][:64]
        same = same_to_the_bit(home / "models" / "sentiment", home / "runs" / "sentiment", texts)
    print(json.dumps(seconds), same)
    found = {"printed": printed, "cores": os.cpu_count(), "seconds": seconds, "same_to_the_bit": same}
    RUN.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_reviews(file: Path, rows: list[dict[str, str]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as written:
        writer = csv.writer(written)
        writer.writerow(("review", "verdict"))
        writer.writerows((row["sentence"].strip(), LABELS[int(row["label"])]) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--data", type=Path, help="folder with SST-2 as GLUE has it")
    parser.add_argument("--backbone", help="all-MiniLM-L6-v2, as a folder or hub name")
    arguments = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    if arguments.run:
        run(commands(page), arguments.data, arguments.backbone)
    PAGE.write_text(filled(page), encoding="utf-8")


if __name__ == "__main__":
    main()
