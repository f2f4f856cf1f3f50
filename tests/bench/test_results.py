"""What was measured: kept, said in words, shown."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from offramp.bench import BenchResults, verdict
from offramp.bench.results import ExitGain
from offramp.bench.tables import bench_table, milliseconds
from offramp.errors import OfframpError
from tests.bench.made_results import NAMES, made_results, made_workload


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    made = made_results(made_workload(), made_workload(batch_size=None))
    made.write(tmp_path / "bench.json")
    assert BenchResults.read(tmp_path / "bench.json") == made


@pytest.mark.parametrize(
    ("text", "message"),
    [("{}", "no file of offramp bench"), ("[", "no file of"), ('{"format": 0}', "another version of offramp")],
)
def test_other_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bench.json").write_text(text)
    with pytest.raises(OfframpError, match=message):
        BenchResults.read(tmp_path / "bench.json")


GAINS = {
    "exits pay (fp32 2.00× as fast as full depth, 2.40× by layers)": [ExitGain("fp32", 2.0)],
    "exits do not pay (fp32 0.81× as fast as full depth, 2.40× by layers)": [ExitGain("fp32", 0.81)],
    "exits do not pay (fp32 1.02×": [ExitGain("fp32", 1.02)],
    "exits pay in fp32 1.50× but do not pay in int8 0.90×": [ExitGain("fp32", 1.5), ExitGain("int8", 0.9)],
}


@pytest.mark.parametrize(("words", "gains"), GAINS.items())
def test_it_says_whether_exits_pay(words: str, gains: list[ExitGain]) -> None:
    assert words in verdict(made_workload(gains=gains))


def test_it_says_what_is_fastest_also_when_that_is_not_ours() -> None:
    ours = verdict(made_workload())
    assert ours.startswith("Batch 32: ")
    assert ours.endswith("fastest is offramp fp32, exits: 3.00× as fast as the best rival, transformers fp32.")
    theirs = made_workload(
        batch_size=None, fastest=NAMES[3], faster_than={NAMES[0]: 1.25, NAMES[1]: 1.5, NAMES[2]: 12.34}
    )
    assert verdict(theirs).startswith("Stream: ")
    assert verdict(theirs).endswith("fastest is ONNX Runtime int8, not offramp: 1.25× as fast as offramp fp32, exits.")


def test_the_table_shows_every_number() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(bench_table(made_results(made_workload(), made_workload(batch_size=None, rounds=1))))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "batch 32 (64 rows, 5 rounds)" in lines[3]
    line = next(line for line in lines if "transformers fp32" in line)
    assert line.split() == ["transformers", "fp32", "240", "–", "133", "33", "%"]
    assert any("stream (64 rows, 1 round)" in line for line in lines)
    assert [milliseconds(number) for number in (None, 0.4567, 12.345, 1234.5)] == ["–", "0.457", "12.3", "1,234"]


def test_the_figure_has_a_bar_for_each_timing(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from offramp.bench.drawing import EXITS, bench_figure, draw

    alone = made_workload(batch_size=1)
    without = made_workload(batch_size=1, timings=[one for one in alone.timings if one.name != NAMES[2]])
    results = made_results(without, made_workload())
    figure = bench_figure(results)
    assert [len(axes.patches) for axes in figure.axes] == [3, 4]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == list(NAMES)
    first = figure.axes[1].patches[0]
    assert first.get_width() == 400
    assert first.get_facecolor()[:3] == pytest.approx([int(EXITS[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    draw(results, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").stat().st_size > 5000
