"""What the engine makes of saved layers: every number is a ratio within one run, contestants in turns.

    python benchmarks/engine.py --device cpu --json benchmarks/results/engine_cpu.json
    python benchmarks/engine.py --device cuda --json benchmarks/results/engine_h200.json
    python benchmarks/engine.py --memory --json benchmarks/results/engine_cpu.json

BERT-base with random weights and an exit after each layer; texts of 26 tokens on average (4 to 128, gamma distributed);
scripted exits after 5.1 of 12 layers on average. Exits and policy are really computed. Tokenising, padding and packing
are not timed, for nobody; moving inputs to the GPU and answers back is. A batch is timed until its answers are there,
and a round until the device is idle. A ratio is the median over rounds of the ratios within a round. Measures add up in
the file: one of the same name is replaced.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from predict_memory import WORDS, make_model, megabytes

from offramp.bench.checking import check_answers
from offramp.bench.contestants import Contestant, Numbered, Offramp, own_pair
from offramp.bench.machine import about_machine
from offramp.bench.rivals import OnnxRuntime, Transformers, export, quantised
from offramp.bench.timing import PAUSE, Rounds, interleave
from offramp.bench.workload import SHAPES, made_up_rows, model_of, random_row
from offramp.engine import Engine
from offramp.engine.backends import Setting
from offramp.models import MultiExitModel
from offramp.policies import Fixed, Scripted
from offramp.tasks.encoding import Row

GIB = 2**30
BATCH = 32
FLAT = 20
"""MB by which memory may grow over a million rows: the allocator's noise."""
ALIKE = 0.005
"""The ideal speed-up by rows and by tokens differ by less than this share: long texts leave neither early nor late."""

Measure = dict[str, Any]
Turn = Sequence[Callable[[], object]]


def script(rows: Sequence[Row], depth: int) -> tuple[int, ...]:
    """Exits of normal(5, 3) cut to 1 … 12, or the same share of another depth, drawn until lengths do not matter."""
    tokens = np.array([len(row) for row in rows])
    for seed in count():
        draw = np.random.default_rng(seed)
        layers = np.rint(draw.normal(5 * depth / 12, depth / 4, len(rows))).clip(1, depth).astype(int)
        by_tokens = float((tokens * layers).sum() / tokens.sum())
        if abs(by_tokens / layers.mean() - 1) < ALIKE:
            return tuple(layers.tolist())
    raise AssertionError


class Arena:
    """Turns of one comparison, and what came of it."""

    def __init__(self, turns: dict[str, Turn], rounds: int, device: str, detail: dict[str, Any]) -> None:
        self.rounds = Rounds()
        self.detail = detail
        pause, warm_up = PAUSE, 1
        if device == "cuda":
            turns = {name: to_the_end(turn) for name, turn in turns.items()}
            pause, warm_up = 0.0, 3
        interleave(turns, Rounds(), 0, warm_up, least_rounds=warm_up, pause=pause)
        interleave(turns, self.rounds, 0, rounds, least_rounds=rounds, pause=pause)
        self.names = list(turns)

    def measure(self, name: str, slow: str, fast: str, target: float, ideal: float | None = None) -> Measure:
        """How many times faster, or with an ideal, which share of that."""
        ratios = self.rounds.totals(slow) / self.rounds.totals(fast)
        value = float(np.median(ratios)) / (ideal or 1)
        detail = {
            "slow": slow,
            "fast": fast,
            "ratio": round(float(np.median(ratios)), 4),
            "ratio_quartiles": np.percentile(ratios, [25, 75]).round(4).tolist(),
            "rounds": len(ratios),
            "median_ms_of_a_batch": {one: round(1000 * self.rounds.latency(one)[0], 4) for one in self.names},
            "median_ms_of_a_round": {
                one: round(1000 * float(np.median(self.rounds.totals(one))), 3) for one in self.names
            },
            "compared_with": "at least",
        }
        print(f"{value:8.3f}  {target:6.2f}  {name}", flush=True)
        return {"measure": name, "value": round(value, 4), "target": target, "detail": {**detail, **self.detail}}


def to_the_end(turn: Turn) -> Turn:
    """A turn's last batch takes until the device has nothing left to do, the others until their answers are there."""

    def last() -> None:
        turn[-1]()
        torch.cuda.synchronize()

    return [*turn[:-1], last]


def turns_of(contestant: Contestant, works: Sequence[Any]) -> Turn:
    return [partial(contestant.run, work) for work in works]


def details(
    model: MultiExitModel, setting: Setting, rows: Numbered, layers: Sequence[int], **more: Any
) -> dict[str, Any]:
    mean_layers = float(np.mean([layers[number] for number, _ in rows]))
    return {
        "rows": len(rows),
        "mean_tokens": round(float(np.mean([len(row) for _, row in rows])), 2),
        "mean_layers": round(mean_layers, 3),
        "ideal": round(model.backbone.depth / mean_layers, 4),
        "not_timed": "tokenising, padding, packing",
        "machine": about_machine(setting),
        **more,
    }


def on_cpu(arguments: argparse.Namespace) -> list[Measure]:
    model = model_of(SHAPES[arguments.shape])
    depth = model.backbone.depth
    in_batches = made_up_rows(arguments.rows or 8 * BATCH, model)
    alone = made_up_rows(max(8, len(in_batches) // 4), model, seed=1)
    layers = script(in_batches, depth) + script(alone, depth)
    numbered = list(enumerate([*in_batches, *alone]))
    many, single = numbered[: len(in_batches)], numbered[len(in_batches) :]
    int8, fp32 = (Engine(model, Scripted(layers), "cpu", kind, threads=arguments.threads) for kind in ("int8", "fp32"))
    ours: list[Contestant] = [*own_pair(int8, Fixed(depth)), *own_pair(fp32, Fixed(depth))]
    plain = Transformers(model, fp32.setting, sorts=False)
    with tempfile.TemporaryDirectory() as folder:
        onnx = OnnxRuntime(model, quantised(export(model, Path(folder))), "int8", fp32.setting.threads)
    check_answers(model, [*ours, onnx, plain], single[:6])
    measures = []
    for size, rows, rivals in ((1, single, [onnx, plain]), (BATCH, many, [onnx])):
        about = details(model, fp32.setting, rows, layers, batch_size=size, onnx_batches="from rows sorted by length")
        turns = {one.name: turns_of(one, one.batches(rows, size)) for one in [*ours, *rivals]}
        measures += _cpu_measures(Arena(turns, arguments.rounds or 9, "cpu", about), size, about["ideal"])
    return measures


def _cpu_measures(arena: Arena, size: int, ideal: float) -> list[Measure]:
    """ONNX Runtime's int8 at full depth is Hugging Face's class, exported and quantised as a user would."""
    int8_full, int8_exits, fp32_full, fp32_exits, onnx, *plain = arena.names
    by_graph = {name: round(arena.rounds.ratio(name, int8_exits), 4) for name in (onnx, int8_full)}
    arena.detail |= {"against_int8_at_full_depth": by_graph}
    ordered = ", sorted" if size > 1 else ""
    return [
        *(arena.measure(f"batch {size}: int8 with exits against {name}", name, int8_exits, 11) for name in plain),
        arena.measure(
            f"batch {size}: int8 with exits against ONNX Runtime int8 at full depth{ordered}",
            onnx,
            int8_exits,
            2.2 if size == 1 else 2.0,
        ),
        arena.measure(f"batch {size}: fp32, share of the ideal speed-up by exits", fp32_full, fp32_exits, 0.9, ideal),
    ]


def on_cuda(arguments: argparse.Namespace) -> list[Measure]:
    model = model_of(SHAPES[arguments.shape])
    depth = model.backbone.depth
    texts = made_up_rows(arguments.rows or 8192, model)
    draw = np.random.default_rng(1)
    alone = [random_row(draw, 32, model) for _ in range(256)]
    layers = script(texts, depth) + script(alone, depth)
    numbered = list(enumerate([*texts, *alone]))
    many, single = numbered[: len(texts)], numbered[len(texts) :]
    engine, memory = with_its_memory(model, Scripted(layers), many)
    full, exits = own_pair(engine, Fixed(depth))
    plain, ordered = (Transformers(model, engine.setting, sorts) for sorts in (False, True))
    check_answers(model, [full, exits, plain, ordered], single[:6])
    about = partial(details, model, engine.setting, layers=layers)
    rounds = arguments.rounds or 20
    return [
        memory,
        *_alone(Arena(_one_by_one((full, exits, plain), single), rounds, "cuda", about(rows=single, batch_size=1))),
        *_in_16k(full, exits, ordered, many, rounds, about(rows=many, batch_tokens=engine.size.tokens)),
        *_in_32(full, exits, many, rounds, about(rows=many, batch_size=BATCH)),
    ]


def _one_by_one(contestants: Sequence[Contestant], rows: Numbered) -> dict[str, Turn]:
    return {one.name: turns_of(one, one.batches(rows, 1)) for one in contestants}


def _alone(arena: Arena) -> list[Measure]:
    full, exits, plain = arena.names
    return [
        arena.measure("batch 1 of 32 tokens: full depth against transformers", plain, full, 8),
        arena.measure("batch 1 of 32 tokens: with exits against transformers", plain, exits, 15),
    ]


def _in_16k(
    full: Offramp, exits: Offramp, plain: Contestant, rows: Numbered, rounds: int, about: dict[str, Any]
) -> list[Measure]:
    arena = Arena({one.name: turns_of(one, one.stream(rows)) for one in (full, exits, plain)}, rounds, "cuda", about)
    arena.detail |= {"texts_per_second": {name: round(arena.rounds.rate(name, len(rows))) for name in arena.names}}
    return [
        arena.measure(
            "batches of 16k tokens: full depth against transformers, sorted, batch 512", plain.name, full.name, 2.3
        ),
        arena.measure(
            "batches of 16k tokens: with exits against transformers, sorted, batch 512", plain.name, exits.name, 4.8
        ),
        arena.measure(
            "batches of 16k tokens: share of the ideal speed-up by exits", full.name, exits.name, 0.85, about["ideal"]
        ),
    ]


def _in_32(full: Offramp, exits: Offramp, rows: Numbered, rounds: int, about: dict[str, Any]) -> list[Measure]:
    """Batches of 32, each answered at once; and as a stream, in which rows wait for company."""
    some = rows[: 64 * BATCH]
    apart = {one.name: turns_of(one, one.batches(some, BATCH)) for one in (full, exits)}
    held = {f"{one.name}, held together": one.batches(some, BATCH) for one in (full, exits)}
    together: dict[str, Turn] = {
        name: turns_of(one, [[batch for work in works for batch in work]])
        for one, (name, works) in zip((full, exits), held.items(), strict=True)
    }
    arena = Arena({**apart, **together}, rounds, "cuda", {**about, "rows": len(some)})
    full_held, exits_held = together
    against_held = round(arena.rounds.ratio(full_held, exits_held), 4)
    arena.detail |= {"against_full_depth_held_together": against_held}
    return [
        arena.measure("one batch of 32: with exits against own full depth", full.name, exits.name, 1.0),
        arena.measure(
            "stream of batches of 32: with exits, held together, against own full depth", full.name, exits_held, 1.5
        ),
    ]


def with_its_memory(model: MultiExitModel, policy: Scripted, rows: Numbered) -> tuple[Engine, Measure]:
    """An engine, and the GPU memory of its graphs and buffers after it has run: all that it took, less its weights."""
    torch.zeros(1024, 1024, device="cuda", dtype=torch.bfloat16) @ torch.zeros(1024, 1024, device="cuda").bfloat16()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before, _ = torch.cuda.mem_get_info()
    engine = Engine(model, policy, "cuda", "bf16", "graphs")
    exits = Offramp("warming up", engine, policy, engine.runner)
    for work in [*exits.stream(rows), *exits.batches(rows[:256], BATCH), *exits.batches(rows[:64], 1)]:
        exits.run(work)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    after, _ = torch.cuda.mem_get_info()
    weights = 2 * sum(parameter.numel() for parameter in model.parameters())
    value = (before - after - weights) / GIB
    print(f"{value:8.3f}  {2:6.2f}  GPU memory of graphs and buffers, GiB", flush=True)
    detail = {
        "compared_with": "at most",
        "with_weights_gib": round((before - after) / GIB, 3),
        "weights_gib": round(weights / GIB, 3),
        "torch_reserved_gib": round(torch.cuda.memory_reserved() / GIB, 3),
        "machine": about_machine(engine.setting),
    }
    return engine, {
        "measure": "GPU memory of graphs and buffers, GiB",
        "value": round(value, 4),
        "target": 2,
        "detail": detail,
    }


def over_many_rows(arguments: argparse.Namespace) -> list[Measure]:
    """Texts through `Engine.stream` with a tiny model, and what the process holds in memory meanwhile."""
    rows = arguments.rows or 1_000_000
    torch.set_num_threads(arguments.threads or 1)  # a model this small is no work for two
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder))
        engine = Engine(folder, "entropy(0.3)", "cpu", backend=arguments.backend)
        started, curve = time.perf_counter(), []
        for done, _ in enumerate(engine.stream(texts_of(rows)), start=1):
            if done % max(1, rows // 200) == 0:
                curve.append((done / rows, megabytes(os.getpid()) or 0.0))
    later = [held for share, held in curve if share >= 0.1]
    growth = max(later) - later[0]
    print(f"{growth:8.1f}  {FLAT:6.2f}  memory, MB", flush=True)
    detail = {
        "compared_with": "at most",
        "rows": rows,
        "rows_per_second": round(rows / (time.perf_counter() - started)),
        "rss_mb": {f"{100 * share:.0f}%": round(held, 1) for share, held in curve[19::20]},
        "machine": about_machine(engine.setting),
    }
    name = f"memory over {rows:,} rows, backend {arguments.backend}: growth after the first tenth, MB"
    return [{"measure": name, "value": round(growth, 1), "target": FLAT, "detail": detail}]


def texts_of(rows: int) -> Iterator[str]:
    draw = random.Random(0)
    return (" ".join(draw.choices(WORDS, k=draw.randint(3, 40))) for _ in range(rows))


def write(measures: list[Measure], path: Path) -> None:
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    new = {measure["measure"] for measure in measures}
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = [measure for measure in known if measure["measure"] not in new]
    path.write_text(json.dumps([*kept, *measures], indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--memory", action="store_true", help="memory over a million rows, and nothing else")
    parser.add_argument("--backend", choices=("onnx", "torch"), default="onnx", help="with --memory")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--shape", choices=SHAPES, default="bert-base", help="targets are for bert-base")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    measured = over_many_rows if arguments.memory else on_cuda if arguments.device == "cuda" else on_cpu
    write(measured(arguments), arguments.json)


if __name__ == "__main__":
    main()
