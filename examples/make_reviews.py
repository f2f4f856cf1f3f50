"""Writes film reviews made by a grammar: rows to train on, and new ones of the same kind.

python make_reviews.py reviews.csv 5000 new.csv 1000
"""

import csv
import sys
from pathlib import Path

from offramp.quickstart.reviews import make_reviews

files = list(zip(sys.argv[1::2], map(int, sys.argv[2::2]), strict=True))
reviews = enumerate(make_reviews(sum(rows for _, rows in files), seed=7), start=1)
for name, rows in files:
    with Path(name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "review", "verdict"])
        writer.writerows([number, one.review, one.verdict] for number, one in (next(reviews) for _ in range(rows)))
