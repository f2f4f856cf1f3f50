"""Data sets on the Hugging Face hub, read through `datasets`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from offramp.errors import OfframpError, needs, one_line
from offramp.tasks.benchmarks import Benchmark
from offramp.tasks.dev_split import cut_dev
from offramp.tasks.tables import Record, Table

log = logging.getLogger("offramp")

BATCH = 1024
UNLABELLED = -1
"""What hub sets have in place of a label they do not have."""


def load_splits(name: str, config: str | None = None) -> dict[str, Any]:
    """Every split of a hub set (or of a local folder that `datasets` can read). The one place that asks the hub."""
    datasets = needs("datasets", "data")
    retries = logging.getLogger("huggingface_hub")
    level = retries.level
    retries.setLevel(logging.ERROR)  # it warns of every attempt, twice; our one line says how it ended
    what = name if config is None else f"{name} ({config})"
    try:
        return dict(datasets.load_dataset(name, config))
    except Exception as error:  # what goes wrong out there has many types, and is never ours
        raise OfframpError(
            f"hub data set {what} could not be loaded ({type(error).__name__}: {one_line(error)}): "
            "check the name and the network, or give local files with --data-dir or --data"
        ) from error
    finally:
        retries.setLevel(level)


def hub_table(dataset: Any, source: str) -> Table:
    """A split of a hub set as a table."""

    def rows() -> Iterator[Record]:
        number = 0
        for batch in dataset.iter(BATCH):
            for cells in zip(*batch.values(), strict=True):
                number += 1
                yield Record(number, dict(zip(batch, cells, strict=True)))

    names = {column: getattr(feature, "names", None) for column, feature in dataset.features.items()}
    label_names = {column: tuple(labels) for column, labels in names.items() if labels}
    return Table(source, tuple(dataset.column_names), rows(), label_names, numbered="row ")


def benchmark_tables(bench: Benchmark) -> dict[str, Callable[[], Table]]:
    """The splits of a benchmark on the hub, labels in column `label` as its official files write them."""
    hub = bench.hub
    splits = load_splits(hub.name, hub.config)
    missing = [theirs for theirs in hub.splits.values() if theirs not in splits]
    if missing:
        raise OfframpError(f"hub data set {hub.name} has no split {missing[0]}: it has {', '.join(splits)}")

    def table(split: str) -> Table:
        dataset = splits[hub.splits[split]]
        if hub.cut_dev and split in ("train", "dev"):
            train, dev = cut_dev([str(label) for label in dataset["label"]], len(dataset), hub.cut_dev, seed=0)
            dataset = dataset.select(train if split == "train" else dev)
        source = " ".join(filter(None, ("hub:" + hub.name, hub.config, hub.splits[split])))
        return _official_labels(bench, split, hub_table(dataset, source))

    return {split: lambda split=split: table(split) for split in hub.splits}  # type: ignore[misc]


def _official_labels(bench: Benchmark, split: str, table: Table) -> Table:
    """Labels as the official files write them; rows that should have one and have none are left out, and counted."""
    if bench.files[split].label is None:
        return table
    names = table.label_names.get("label", ())
    by_name = bool(names) and set(names) == set(
        bench.labels
    )  # else the files have the hub's numbers, or texts of their own

    def rows() -> Iterator[Record]:
        left_out = 0
        for line, values in table:
            label = values["label"]
            if bench.labels and label == UNLABELLED:
                left_out += 1
                continue
            written = names[label] if by_name else bench.hub.labels.get(label, label)
            yield Record(line, {**values, "label": written})
        if left_out:
            log.warning("%s: %d rows without a label left out", table.source, left_out)

    return Table(table.source, table.columns, rows(), numbered=table.numbered)
