"""The page's tables, as lines of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from benchmarks.study import papers
from benchmarks.study.curves import Estimate
from benchmarks.study.grid import METHODS, StudyTask, plain
from benchmarks.study.summary import CASCADE, OURS, STATIC, Number, Summary, winners
from benchmarks.study.times import speed_up

SPEED_UPS = (1.5, 2, 3, 4)
NOTHING = "–"

Line = list[str]


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = ["| " + " | ".join(line) + " |" for line in (head, *lines)]
    return "\n".join([rows[0], "|" + "---|" * len(head), *rows[1:]]) + "\n"


def written(one: Estimate | None, runs: int, scale: float = 100, bold: bool = False) -> str:
    """`87.3 ± 0.4`; with how many seeds, where they are fewer than there are to be."""
    if one is None:
        return NOTHING
    mean = f"{scale * one.mean:.1f}".replace("-0.0", "0.0")
    text = mean if one.half_width is None else f"{mean} ± {scale * one.half_width:.1f}"
    text = f"**{text}**" if bold else text
    return text if one.runs >= runs else f"{text} ({one.runs})"


def by_task(summary: Summary, number: Number, methods: Sequence[str] | None = None) -> str:
    """A column for each task, and the mean of all; bold: the best, and who is within its interval."""
    runs = len(summary.backbone.seeds)
    shown = [method for method in summary.methods if methods is None or method in methods]
    near = {task.name: winners(summary.ranking(number, task.name))[1] for task in summary.tasks}
    overall = {method: one for method in shown if (one := summary.over_tasks(number, method))}
    best = winners(dict(sorted(overall.items(), key=lambda item: -item[1].mean)))[1]

    def line(method: str) -> Line:
        cells = [
            written(
                summary.over_seeds(number, task.name, method), runs, bold=methods is None and method in near[task.name]
            )
            for task in summary.tasks
        ]
        mean = written(overall.get(method), runs, bold=methods is None and method in best)
        return [method, *cells, mean]

    return table(["method", *(task.title for task in summary.tasks), "mean"], map(line, shown))


def wins(summary: Summary, number: Number) -> str:
    """On how many tasks each method is best, or as good as."""
    found = {task.name: winners(summary.ranking(number, task.name)) for task in summary.tasks}
    lines = []
    for method in summary.methods:
        best = sum(first == method for first, _ in found.values())
        near = sum(method in near for _, near in found.values())
        lines.append([method, str(best), str(near)])
    return table(["method", "best", "best or within the best's interval"], lines)


def verdict(summary: Summary, number: Number, wanted: int) -> str:
    """Whether our recipe is what it was made to be."""
    overall = {method: one for method in summary.methods if (one := summary.over_tasks(number, method))}
    ours = overall.pop(OURS, None)
    if ours is None:
        return f"`{OURS}` has not been run on all tasks yet."
    if not overall:
        return "No other method has been run on all tasks yet."
    rival = max(overall, key=lambda method: overall[method].mean)
    difference = 100 * (ours.mean - overall[rival].mean)
    near = [task.title for task in summary.tasks if OURS in winners(summary.ranking(number, task.name))[1]]
    holds = "holds" if difference > 0 and len(near) >= wanted else "does not hold"
    return (
        f"`{OURS}` {100 * ours.mean:.1f}, the best other (`{rival}`) {100 * overall[rival].mean:.1f}: a difference of "
        f"{difference:+.1f}. It is best, or within the best's interval, on {len(near)} of {len(summary.tasks)} tasks "
        f"({', '.join(near) or 'none'}); {wanted} were wanted. What was to be shown {holds}."
    )


def speed_ups(summary: Summary, task: StudyTask) -> str:
    """What a task's curves give at fixed budgets, in layers and in FLOPs, and the ELUE score."""
    runs = len(summary.backbone.seeds)
    numbers: dict[str, tuple[Number, float]] = {"full depth": (summary.at_full_depth, 100)}
    for cost, unit in (("layers", ""), ("flops", " FLOPs")):
        numbers |= {f"{times:g} ×{unit}": (summary.at_speed_up(cost, times), 100) for times in SPEED_UPS}
    numbers["ELUE"] = (summary.elue, 1)

    def line(method: str) -> Line:
        found = [summary.over_seeds(number, task.name, method) for number, _ in numbers.values()]
        return [method, *(written(one, runs, scale) for one, (_, scale) in zip(found, numbers.values(), strict=True))]

    return table(["method", *numbers], map(line, summary.methods))


def exits(summary: Summary, task: StudyTask) -> str:
    """The score of each exit for all rows; of `plain`, of models that end there."""
    runs, layers = len(summary.backbone.seeds), range(1, summary.backbone.depth + 1)
    shown = [method for method in summary.methods if method not in (CASCADE, "ebert")]

    def line(method: str) -> Line:
        found = [summary.over_seeds(summary.exit_score(layer), task.name, method) for layer in layers]
        return [method, *(written(one, runs) for one in found)]

    return table([f"{task.title}, after layer", *map(str, layers)], map(line, shown))


def own_rules(summary: Summary) -> str:
    """Area in layers where each method may also leave by the rules of its paper."""
    methods = [one for one in summary.backbone.methods if set(METHODS[one].own_rules) - {"entropy"}]
    return by_task(summary, summary.area("layers", "own"), methods)


def known_findings(summary: Summary) -> str:
    """What the papers found, in our numbers: means over the tasks that are there."""
    depth, tasks = summary.backbone.depth, [task.name for task in summary.tasks]
    lower = range(1, depth // 2 + 1)

    def mean(number: Number, method: str, of: Sequence[str] = tasks) -> dict[str, float]:
        found = {task: summary.over_seeds(number, task, method) for task in of}
        return {task: 100 * one.mean for task, one in found.items() if one}

    def difference(number: Number, left: str, right: str, of: Sequence[str] = tasks) -> str:
        ours, theirs = mean(number, left, of), mean(number, right, of)
        both = [ours[task] - theirs[task] for task in ours if task in theirs]
        return f"{fmean(both):+.1f} ({len(both)} tasks)" if both else NOTHING

    def at_lower_exits(task: str, method: str, seed: int) -> float | None:
        found = [summary.exit_score(layer)(task, method, seed) for layer in lower]
        return None if any(one is None for one in found) else fmean(found)  # type: ignore[arg-type]

    regression = [task for task in tasks if task == "sts-b"]
    lines = [
        [
            "joint training (`elasticbert`) over `deebert`, exits 1 to half",
            difference(at_lower_exits, "elasticbert", "deebert"),
        ],
        [
            "the same with self-distillation after fine-tuning (`offramp`)",
            difference(at_lower_exits, OURS, "deebert"),
        ],
        [
            "self-distillation (`romebert`) over `deebert`, exits 1 to half",
            difference(at_lower_exits, "romebert", "deebert"),
        ],
        [
            "self-distillation (`romebert-sd`) against `plain`, at the top",
            difference(summary.at_full_depth, "romebert-sd", STATIC),
        ],
        [
            "the same after fine-tuning (`offramp`)",
            difference(summary.at_full_depth, OURS, STATIC),
        ],
        [
            "gradient regularisation (`romebert` against `romebert-sd`), at the top",
            difference(summary.at_full_depth, "romebert", "romebert-sd"),
        ],
        [
            "learned loss weights (`elbert-dynamic` against `-equal`), area",
            difference(summary.area("layers"), "elbert-dynamic", "elbert-equal"),
        ],
        [
            "exits on gates (`ebert+elasticbert` against `ebert`), area in FLOPs",
            difference(summary.area("flops"), "ebert+elasticbert", "ebert"),
        ],
    ]
    for method in ("elasticbert", OURS):
        halved = mean(summary.at_speed_up("layers", 2), method, regression)
        top = mean(summary.at_full_depth, method, regression)
        shown = f"{halved['sts-b']:.1f}, at full depth {top['sts-b']:.1f}" if halved and top else NOTHING
        lines.append([f"patience on regression: `{method}` on STS-B at 2 ×", shown])
    return table(["finding", "here"], lines)


def romebert_beside(summary: Summary) -> str:
    """RomeBERT's figures and ours, at a quarter, half, three quarters and all of the layers."""
    depth, parts = summary.backbone.depth, (0.25, 0.5, 0.75, 1)
    own = [round(part * depth) for part in parts]
    lines = []
    for task in summary.tasks:
        for method, scores in papers.ROMEBERT_FIGURES.get(task.name, {}).items():
            theirs = [f"{scores[round(12 * part) - 1]:.1f}" for part in parts]
            ours = [summary.over_seeds(summary.exit_score(layer), task.name, method) for layer in own]
            lines.append([task.title, method, *theirs, *(f"{100 * one.mean:.1f}" if one else NOTHING for one in ours)])
    heads = [f"{who}, {part:.0%} of the layers".replace("%", " %") for who in ("paper", "here") for part in parts]
    return table(["task", "method", *heads], lines)


def static_beside(summary: Summary) -> str:
    """ElasticBERT's static models of half and full depth, and ours."""
    half, whole = summary.backbone.depth // 2, summary.backbone.depth
    lines = []
    for task in summary.tasks:
        if task.name not in papers.ELASTICBERT_STATIC:
            continue
        ours = [summary.over_seeds(summary.exit_score(layers), task.name, STATIC) for layers in (half, whole)]
        theirs = [f"{low} / {high}" for low, high in papers.ELASTICBERT_STATIC[task.name].values()]
        lines.append([task.title, *theirs, " / ".join(f"{100 * one.mean:.1f}" if one else NOTHING for one in ours)])
    return table(["half / all layers", "BERT-base", "ElasticBERT-base", f"here, {plain(half)} / {plain(whole)}"], lines)


def deebert_beside(summary: Summary) -> str:
    """DeeBERT's three settings, and what ours lose for the same share of layers."""
    lines = []
    for task in summary.tasks:
        top = summary.over_seeds(summary.at_full_depth, task.name, "deebert")
        for lost, saved in papers.DEEBERT_SAVINGS.get(task.name, ()):
            at = summary.over_seeds(summary.at_speed_up("layers", 100 / (100 - saved)), task.name, "deebert")
            here = f"{100 * (at.mean - top.mean):+.1f}" if at and top else NOTHING
            lines.append([task.title, f"{saved} %", lost, here])
    return table(["task", "saved", "paper", "here, `deebert`"], lines)


def times(summary: Summary, found: dict[str, Any] | None) -> str:
    """What a layer and an exit take, and what speed-ups in layers are in time."""
    depth = summary.backbone.depth
    settings = {name: parts for name, parts in (found or {}).items() if isinstance(parts, dict) and "layer" in parts}
    lines = [
        [
            name,
            *(f"{1000 * parts[part]:.0f}" for part in ("fixed", "layer", "exit")),
            *(f"{speed_up(parts, depth, depth / times):.2f} ×" for times in SPEED_UPS),
        ]
        for name, parts in settings.items()
    ]
    heads = ["setting", "in and out, µs", "a layer, µs", "an exit, µs", *(f"{t:g} × in layers" for t in SPEED_UPS)]
    return table(heads, lines)
