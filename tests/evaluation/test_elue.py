"""The ELUE score and its reference curves."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from offramp import OfframpError
from offramp.evaluation import ReferenceCurve, elue_score, overall_elue_score, reference_curve
from offramp.evaluation.elue import with_reference
from tests.evaluation.made_traces import random_trace
from tests.evaluation.sample_results import sample_results

CURVE = ReferenceCurve("accuracy", ((100.0, 80.0), (200.0, 90.0), (400.0, 92.0)), "mine.json")


def write(path: Path, tasks: Any) -> Path:
    path.write_text(json.dumps({"about": "made up", "tasks": tasks}))
    return path


def test_between_the_points_and_outside() -> None:
    assert [CURVE.at(x) for x in (50, 100, 150, 300, 400, 9000)] == [80, 80, 85, 91, 92, 92]


def test_the_reference_itself_scores_nothing() -> None:
    points = random_trace().sweep("fixed").points
    own = ReferenceCurve("accuracy", tuple((point.mflops, 100 * point.scores["accuracy"]) for point in points))
    assert elue_score(points, own) == pytest.approx(0)
    better = [dataclasses.replace(p, scores={"accuracy": p.scores["accuracy"] + 0.01}) for p in points]
    assert elue_score(better, own) == pytest.approx(1.0)
    cheaper = [dataclasses.replace(p, mflops=p.mflops / 2) for p in points]
    assert elue_score(cheaper, own) > 1


def test_overall_is_the_mean_over_tasks() -> None:
    assert overall_elue_score({"elue/sst-2": 1.0, "elue/imdb": -2.0}) == -0.5


def test_own_file(tmp_path: Path) -> None:
    file = write(tmp_path / "mine.json", {"made/up": {"metric": "accuracy", "points": [[400, 92], [100, 80.0]]}})
    curve = reference_curve("made/up", file)
    assert curve == ReferenceCurve("accuracy", ((100.0, 80.0), (400.0, 92.0)), str(file))
    results = random_trace().results(reference=curve)
    assert all(sweep.elue is not None for sweep in results.sweeps)
    assert results.settings["reference"] == str(file)
    with pytest.raises(OfframpError, match="has no reference curve for elue/imdb: it has made/up"):
        reference_curve("elue/imdb", file)


def test_the_shipped_file_is_read() -> None:
    assert reference_curve("no/such-task") is None


def test_another_metric_is_refused() -> None:
    with pytest.raises(OfframpError, match=r"mine.json is scored by f1, but the task by accuracy"):
        random_trace().results(reference=dataclasses.replace(CURVE, metric="f1"))


@pytest.mark.parametrize(
    "content", ["", "[]", '{"tasks": 3}', '{"tasks": {"a": {"metric": "f1", "points": []}}}', '{"tasks": {"a": {}}}']
)
def test_files_that_are_no_curves(content: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(OfframpError, match=r"bad.json is no reference curve .* expected \{"):
        reference_curve("a", tmp_path / "bad.json")
    with pytest.raises(OfframpError, match="cannot be read"):
        reference_curve("a", tmp_path / "missing.json")


def test_ones_own_evaluated_models_are_a_reference(tmp_path: Path) -> None:
    """Static models of k layers in a folder, one results file each; their own points then score 0."""
    several = sample_results("elastic", seed=0, points=8, rows=60)
    for number, exit in enumerate(several.exits):
        place = tmp_path / "static" / f"layers-{number}" / "evaluation" / "dev"
        place.mkdir(parents=True)
        dataclasses.replace(several, exits=[exit], sweeps=[]).write(place / "results.json")
    several.write(tmp_path / "one.json")
    for source in (tmp_path / "static", tmp_path / "one.json"):
        curve = reference_curve(several.task, source)
        assert curve is not None
        assert curve.at(several.exits[0].mflops) == pytest.approx(100 * several.exits[0].scores[several.metric])
        scored = with_reference(several, source)
        assert scored.sweeps[0].elue == pytest.approx(elue_score(several.sweeps[0].points, curve))
        assert scored.settings["reference"] == str(source)
        with pytest.raises(OfframpError, match="no reference curve for other"):
            reference_curve("other", source)
    (tmp_path / "empty").mkdir()
    with pytest.raises(OfframpError, match=r"holds no results.json: run offramp evaluate"):
        reference_curve(several.task, tmp_path / "empty")
