"""Write docs/results.md and its figures from the cells of the study, and from nothing else.

python -m benchmarks.study.page
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.study import store, tables
from benchmarks.study.figures import FIGURES, write_figures, write_front_figure
from benchmarks.study.grid import Cell, grid
from benchmarks.study.summary import Summary, summaries
from benchmarks.study.times import path_of as times_path

ROOT = Path(__file__).parents[2]
CELLS = ROOT / "benchmarks" / "results" / "study"
PAGE = ROOT / "docs" / "results.md"
FINDINGS = Path(__file__).with_name("findings.md")
"""What we learned, written by hand; the other parts that are lie in `WORDS`."""
WORDS = Path(__file__).with_name("words")
WANTED = {"offramp-mini": 5, "minilm": 4}
"""Tasks on which our recipe is to be best, or within the best's interval."""
NAMED = 12
"""Missing cells that are named one by one; of more, how many there are of each method."""


def missing_cells(all_summaries: Sequence[Summary]) -> Iterator[str]:
    """Which cells there are not."""
    there = {cell for summary in all_summaries for cell in summary.cells}
    cells = [cell for summary in all_summaries for cell in grid([summary.backbone], summary.tasks)]
    lost = [cell for cell in cells if cell not in there]
    if not lost:
        yield f"All {len(cells)} cells are there.\n\n"
        return
    yield f"**{len(lost)} of {len(cells)} cells are missing**"
    if len(lost) <= NAMED:
        yield f": {', '.join(f'`{cell.name}`' for cell in lost)}.\n\n"
        return
    lines = [[*group, which_of(lost, cells, group)] for group in dict.fromkeys(map(group_of, lost))]
    yield ":\n\n" + tables.table(["backbone", "method", "tasks (seeds)"], lines) + "\n"


def group_of(cell: Cell) -> tuple[str, str]:
    return cell.backbone, cell.method


def which_of(lost: Sequence[Cell], cells: Sequence[Cell], group: tuple[str, str]) -> str:
    """The missing tasks of a method on a backbone; the seeds, too, where some are there."""
    seeds: dict[str, list[int]] = {}
    for cell in cells:
        if group_of(cell) == group:
            seeds.setdefault(cell.task, []).append(cell.seed)
    missing = {
        task: [seed for seed in of if Cell(group[0], task, group[1], seed) in lost] for task, of in seeds.items()
    }
    if missing == seeds:
        return "all"
    named = ", ".join
    whole = [
        task if found == seeds[task] else f"{task} ({named(map(str, found))})"
        for task, found in missing.items()
        if found
    ]
    return named(whole)


def of_backbone(summary: Summary, cells: Path) -> Iterator[str]:
    """Everything about one backbone."""
    yield f"## {summary.backbone.title}\n\n"
    if not summary.cells:
        yield "Nothing has been run yet.\n\n"
        return
    layers, flops = summary.area("layers"), summary.area("flops")
    if summary.backbone.name in WANTED:
        yield tables.verdict(summary, layers, WANTED[summary.backbone.name]) + "\n\n"
    yield f"Area under the curve of score against layers:\n\n{tables.by_task(summary, layers)}\n"
    yield f"On how many of {len(summary.tasks)} tasks:\n\n{tables.wins(summary, layers)}\n"
    yield f"Area in FLOPs:\n\n{tables.by_task(summary, flops)}\n"
    yield f"Area in layers, where the rules of each paper may be used, too:\n\n{tables.own_rules(summary)}\n"
    for name in FIGURES:
        titles = {"exits": "Score of each exit", "score_cost": "Score against cost"}
        yield f"![{titles[name]}, {summary.backbone.name}](img/study_{summary.backbone.name}_{name}.png)\n\n"
    yield "Bands are ±; stars are static models. What the papers found:\n\n" + tables.known_findings(summary) + "\n"
    if (path := times_path(cells, summary.backbone.name)).is_file():
        found = store.read(path)
        machine = found["machine"]
        yield f"### Layers as time, {summary.backbone.name}\n\n{words('times')}"
        yield f"Measured on: {machine['processor']}, {machine['threads']} threads.\n\n{tables.times(summary, found)}\n"
    begun = {cell.task for cell in summary.cells}
    for task in (task for task in summary.tasks if task.name in begun):
        yield f"### {task.title}, {summary.backbone.name}\n\n"
        yield f"{tables.speed_ups(summary, task)}\n{tables.exits(summary, task)}\n"


def beside_papers(summary: Summary) -> Iterator[str]:
    """The papers' numbers and ours."""
    yield f"## Beside the papers\n\n{words('differences')}"
    yield "Each exit by itself; the paper's read off the figures of RomeBERT's repository (BERT-base, dev):\n\n"
    yield tables.romebert_beside(summary) + "\n"
    yield "Static models (ElasticBERT's table, GLUE dev):\n\n" + tables.static_beside(summary) + "\n"
    yield "Points lost for time saved (DeeBERT's table 1, BERT-base, GLUE test) and for layers saved (here):\n\n"
    yield tables.deebert_beside(summary) + "\n"


def words(name: str) -> str:
    return by_hand(WORDS / f"{name}.md")


def by_hand(path: Path) -> str:
    """A part that is written by hand."""
    return path.read_text(encoding="utf-8").strip() + "\n\n"


def page_text(all_summaries: Sequence[Summary], cells: Path) -> str:
    """The whole page."""
    learned = f"## What we learned\n\n{by_hand(FINDINGS)}"
    parts = [words("top"), *missing_cells(all_summaries), learned, words("method")]
    for summary in all_summaries:
        parts += of_backbone(summary, cells)
    parts += [*beside_papers(all_summaries[0]), words("limits")]
    return "".join(parts).strip() + "\n"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, default=CELLS)
    parser.add_argument("--page", type=Path, default=PAGE)
    asked = parser.parse_args(arguments)
    found = list(summaries(asked.cells))
    text = page_text(found, asked.cells)
    asked.page.write_text(text, encoding="utf-8")
    for summary in found:
        write_figures(summary, asked.page.parent / "img")
    if (times := times_path(asked.cells, found[0].backbone.name)).is_file():
        write_front_figure(found[0], store.read(times), asked.page.parent / "img")
    print(f"{asked.page}: {sum(len(summary.cells) for summary in found)} cells")


if __name__ == "__main__":
    main()
