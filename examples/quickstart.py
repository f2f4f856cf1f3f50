"""Generated reviews and a small encoder that has never been trained, to see the whole loop without any download.

    python examples/quickstart.py

Of four reviews three say what they think; the fourth says nothing, and nobody can know. A model with exits soon learns
which is which: the telling ones can leave early.
"""

from __future__ import annotations

import csv
import os
import random
import shlex
import subprocess
import sys
from pathlib import Path

import torch
from transformers import BertConfig, BertModel, BertTokenizer

FOLDER = Path("runs/quickstart")
PRAISE = ["wonderful", "moving", "clever", "funny", "charming", "brilliant"]
BLAME = ["clumsy", "tiresome", "dull", "empty", "shallow", "boring"]
PLAIN = [
    "the",
    "a",
    "film",
    "story",
    "cast",
    "plot",
    "scene",
    "is",
    "was",
    "and",
    "it",
    "with",
    "of",
    "in",
    "this",
    "about",
]


def review(draw: random.Random) -> tuple[str, str]:
    verdict = draw.choice(["good", "bad"])
    words = draw.choices(PLAIN, k=draw.randint(4, 16))
    if draw.random() < 0.75:
        words.insert(draw.randint(0, len(words)), draw.choice(PRAISE if verdict == "good" else BLAME))
    return " ".join(words), verdict


def make_reviews(path: Path, rows: int, seed: int) -> None:
    draw = random.Random(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("review", "verdict"), *(review(draw) for _ in range(rows))])


def make_backbone(folder: Path) -> None:
    """Six layers, 64 wide, random weights; its vocabulary is the words of the reviews."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PLAIN, *PRAISE, *BLAME]
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    BertTokenizer.from_pretrained(folder).save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4, "intermediate_size": 128}
    BertModel(BertConfig(vocab_size=len(words), max_position_embeddings=64, **shape)).save_pretrained(folder)


def offramp(line: str) -> None:
    """Run a command, and show it as a user would type it."""
    print(f"\n$ offramp {line}", flush=True)
    command = [sys.executable, "-m", "offramp", *shlex.split(line)]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})  # a model this small needs no more


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    make_reviews(FOLDER / "reviews.csv", 4000, seed=1)
    make_backbone(FOLDER / "backbone")
    offramp(
        f"train --data {FOLDER}/reviews.csv --text review --label verdict --backbone {FOLDER}/backbone "
        f"--recipe elasticbert --epochs 3 --learning-rate 1e-3 --out {FOLDER}/model --overwrite"
    )
    offramp(f"evaluate {FOLDER}/model --policy 'entropy(0.3) | patience(3)'")
    offramp(f"predict {FOLDER}/model 'the plot was clumsy and the cast is dull' --policy 'entropy(0.3)'")
    print(f"\nreport  {FOLDER}/model/evaluation/dev/report.html")
    print(
        "next    offramp train --data yours.csv --text TEXT --label LABEL --backbone bert-base-uncased --out runs/yours"
    )


if __name__ == "__main__":
    main()
