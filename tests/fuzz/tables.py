"""Tables and questions: no row is dropped."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as arrow
from pyarrow import parquet

from offramp.tasks import own_task
from offramp.tasks.squad import read_squad
from offramp.tasks.tables import Table, read_table
from tests.fuzz.contract import Target

ROWS: list[dict[str, Any]] = [
    {"text": "a fine film", "label": "1", "id": "7"},
    {"text": 'she said "no",\ttwice', "label": "0", "id": "8"},
    {"text": "Ærlig,\u2028talt \U0001f600", "label": "1", "id": "9"},
]
CLEAN = [{key: value.replace("\t", " ") for key, value in row.items()} for row in ROWS]
QUESTIONS = {
    "version": "v2.0",
    "data": [
        {
            "title": "cats",
            "paragraphs": [
                {
                    "context": "The cat sat on the mat.",
                    "qas": [
                        {"id": "a", "question": "Who?", "answers": [{"text": "The cat", "answer_start": 0}]},
                        {"id": "b", "question": "Why?", "answers": [], "is_impossible": True},
                    ],
                },
                {"context": "", "qas": []},
            ],
        }
    ],
}


def written_csv() -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(ROWS[0]))
    writer.writeheader()
    writer.writerows(ROWS)
    return text.getvalue()


def written_tsv() -> str:
    return "".join("\t".join(row) + "\n" for row in (CLEAN[0].keys(), *(row.values() for row in CLEAN)))


def written_jsonl() -> str:
    return "".join(json.dumps(row) + "\n" for row in ROWS)


def written_parquet() -> bytes:
    sink = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist([{**row, "label": int(row["label"])} for row in ROWS]), sink)
    return sink.getvalue()


def read_every_row(path: Path) -> None:
    """All that a table is read for: its rows, none more or fewer than the file has; and a task's examples of them."""
    table: Table = read_table(path)
    records = list(table)
    expected = counted(path, len(table.columns))
    assert expected in (None, len(records)), f"{expected} rows in the file, {len(records)} read"
    for record in records:
        assert isinstance(record.line, int)
        assert table.numbered or path.suffix == ".jsonl" or record.values.keys() == set(table.columns)
    task = own_task(path, dev_share=0)
    examples = task.split("train")
    assert len(examples.texts) == len(examples.labels) == len(records)


def counted(path: Path, columns: int) -> int | None:
    """The rows of a file, told another way; None where only the reader can tell."""
    if path.suffix == ".parquet":
        return int(parquet.ParquetFile(path).metadata.num_rows)
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    text = data.decode("utf-8").removeprefix("\ufeff")
    if ".tsv" in path.suffixes:
        body = text.split("\n")[1:]
        if not body or not body[-1]:
            body = body[:-1]
        while columns > 1 and body and not body[-1].rstrip("\r"):
            body.pop()
        return len(body)
    if path.suffix in (".jsonl", ".json"):
        if text.lstrip().startswith("["):
            return len(json.loads(text))
        return sum(not line.isspace() and line != "" for line in text.split("\n"))
    if '"' in text or "\r" in text.replace("\r\n", "\n"):
        return None
    return sum(line.rstrip("\r") != "" for line in text.split("\n")) - 1


def read_every_question(path: Path) -> None:
    found = read_squad(path)
    document = json.loads(path.read_bytes())
    asked = sum(len(part["qas"]) for article in document["data"] for part in article["paragraphs"])
    assert len(found) == asked
    found.digest()


def _seeds(text: str) -> list[bytes]:
    return [text.encode(), text.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + text.encode()]


TARGETS = {
    "csv": Target("rows.csv", read_every_row, lambda: _seeds(written_csv())),
    "tsv": Target("rows.tsv", read_every_row, lambda: _seeds(written_tsv())),
    "jsonl": Target("rows.jsonl", read_every_row, lambda: [written_jsonl().encode()], shape="lines"),
    "json": Target("rows.json", read_every_row, lambda: [json.dumps(ROWS).encode()], shape="json"),
    "gzip": Target("rows.tsv.gz", read_every_row, lambda: [gzip.compress(written_tsv().encode(), mtime=0)]),
    "parquet": Target("rows.parquet", read_every_row, lambda: [written_parquet()]),
    "squad": Target("questions.json", read_every_question, lambda: [json.dumps(QUESTIONS).encode()], shape="json"),
}
