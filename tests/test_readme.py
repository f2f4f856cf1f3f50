"""What the README shows was printed, and its figures are those of the runs."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, cast

from benchmarks.study import page as study_page
from benchmarks.study.summary import OURS, STATIC, Number, Summary, summaries
from tests.pages.reading import ROOT, blocks, text_of

RESULTS = ROOT / "benchmarks" / "results"
LONGEST = 8200
"""Bytes: who has to scroll much does not read on."""


def measured(measure: str) -> dict[str, Any]:
    """A row of the H200's table."""
    [row] = [row for row in json.loads((RESULTS / "engine_h200.json").read_text()) if row["measure"] == measure]
    return cast("dict[str, Any]", row)


@cache
def study() -> Summary:
    [summary] = [one for one in summaries(RESULTS / "study") if one.backbone.name == "offramp-mini"]
    return summary


def mean_of(number: Number, task: str, method: str) -> str:
    """Over the seeds, in percent."""
    found = study().over_seeds(number, task, method)
    assert found is not None
    assert found.runs == 3
    return f"{100 * found.mean:.1f}"


def static(task: str) -> str:
    return mean_of(study().exit_score(3), task, STATIC)


def ours(task: str) -> str:
    return mean_of(study().at_speed_up("layers", 4), task, OURS)


def test_what_it_is_not_for_is_measured() -> None:
    readme = text_of("README.md")
    assert f"score {static('sst-2')} on SST-2, exits at their cost {ours('sst-2')}" in readme
    assert f"on MRPC {static('mrpc')} and {ours('mrpc')}" in readme
    one = measured("one batch of 32: with exits against own full depth")["value"]
    stream = measured("stream of batches of 32: with exits, held together, against own full depth")["detail"]
    single = measured("batch 1 of 32 tokens: with exits against transformers")["value"]
    full = measured("batch 1 of 32 tokens: full depth against transformers")["value"]
    together = stream["against_full_depth_held_together"]
    assert (
        f"{one:.2f} × full depth on an H200; a stream of them {together:.2f} ×; single texts {single:.1f} ×" in readme
    )
    assert f"of which full depth gives {full:.1f}" in readme


def test_the_mean_areas_are_the_study_s() -> None:
    found = {method: study().over_tasks(study().area("layers"), method) for method in study().methods}
    areas = {method: f"{100 * one.mean:.1f}" for method, one in found.items() if one is not None}
    named = dict(re.findall(r"`([a-z]+)` \((\d\d\.\d)[):]", text_of("README.md")))
    assert named == {
        "offramp": areas["offramp"],
        "elbert": areas["elbert-dynamic"],
        "elasticbert": areas["elasticbert"],
    }
    assert max(areas, key=lambda method: float(areas[method])) == OURS


def test_what_a_fine_tuned_model_gives() -> None:
    ran = json.loads((RESULTS / "fine_tuned.json").read_text())
    assert ran["same_to_the_bit"]
    added, timed = ran["printed"].values()
    found = re.search(
        r"accuracy ([\d.]+ %) \(the classifier's: ([\d.]+ %)\).*?([\d.]+ of 6 layers on average)", added, re.S
    )
    assert found is not None
    seconds = f"got its exits in {ran['seconds']['add-exits']:.0f} s on two cores"
    assert f"{seconds}: {found[3]}, {found[1]} instead of {found[2]}" in text_of("README.md")
    alone = timed.split("batch 32")[0]
    ours, plain, best = (
        re.search(rf"{name} +[\d.]+ +[\d.]+ +([\d,]+)", alone)[1]  # type: ignore[index]
        for name in ("offramp int8, exits", "transformers fp32", "ONNX Runtime int8")
    )
    shown = f"answers {ours} texts a second in int8; transformers answers {plain}, ONNX Runtime in int8 {best}"
    assert shown in text_of("README.md")


def test_what_is_shown_was_printed() -> None:
    """Each line below a block of commands was printed by one of them."""
    recorded = json.loads((RESULTS / "own_data.json").read_text())["blocks"]
    printed = {line.rstrip() for block in recorded for line in block["printed"].splitlines()}
    ran = {line for block in recorded for line in block["commands"].splitlines()}
    shown = [line for block in blocks("README.md") if block.language == "text" for line in block.text.splitlines()]
    assert len(shown) >= 8
    assert [line for line in shown if line not in printed] == []
    own = text_of("README.md").partition("## Your own CSV")[2].partition("\n## ")[0]
    asked = [line for line in own.splitlines() if line.startswith(("offramp ", "python "))]
    assert len(asked) == 5
    assert [line for line in asked if line not in ran] == []


def test_it_is_short() -> None:
    assert len(text_of("README.md").encode()) < LONGEST


def test_the_study_is_made_from_its_cells_bit_for_bit(tmp_path: Path) -> None:
    study_page.main(["--page", str(tmp_path / "results.md")])
    assert (tmp_path / "results.md").read_text(encoding="utf-8") == text_of("docs/results.md")
    made = {figure.name for figure in (tmp_path / "img").iterdir()}
    assert len(made) >= 3
    assert made <= {figure.name for figure in (ROOT / "docs" / "img").iterdir()}
