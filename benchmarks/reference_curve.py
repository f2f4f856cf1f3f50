"""Make the reference curve of the ELUE score from plain models of every depth.

python benchmarks/recipes.py --static --seeds 1 --backbone MiniLM --data DIR --out benchmarks/results/static
python benchmarks/reference_curve.py
"""

from __future__ import annotations

import json
from pathlib import Path

from offramp.evaluation.results import Results
from offramp.tasks.benchmarks import find_benchmark

HERE = Path(__file__).parent
OUT = HERE.parent / "src" / "offramp" / "evaluation" / "reference" / "minilm.json"
ABOUT = (
    "Reference curves of the ELUE score: all-MiniLM-L6-v2 (6 layers, 384 wide) cut after 1 to 6 layers, each trained "
    "on its own. Points are [mean MFLOPs of a dev sample at its own length, dev score in percent]. One seed. "
    "Made by benchmarks/reference_curve.py."
)


def main() -> None:
    tasks: dict[str, dict[str, object]] = {}
    for path in sorted((HERE / "results" / "static").glob("*.json")):
        results = Results.read(path)
        suites = ("glue", "elue") if results.task == "glue/mrpc" else (results.task.split("/")[0],)
        for suite in suites:  # the same files, another metric; SST-2 is not the same in both
            bench = find_benchmark(f"{suite}/{results.task.split('/')[1]}")
            curve = tasks.setdefault(bench.name, {"metric": bench.metrics[0], "points": []})
            last = results.full_depth
            curve["points"].append([round(last.mflops, 1), round(100 * last.scores[bench.metrics[0]], 2)])  # type: ignore[attr-defined]
    OUT.write_text(json.dumps({"about": ABOUT, "tasks": tasks}, indent=1) + "\n", encoding="utf-8")
    print(f"{OUT.name}: {', '.join(tasks)}")


if __name__ == "__main__":
    main()
