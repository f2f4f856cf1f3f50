"""What skipping saves on the clock: gated models that compute what they keep, against the same model without gates.

    python benchmarks/gates.py                                  BERT-base's shape, random weights, made-up gates
    python benchmarks/gates.py --model DIR --texts FILE         a trained gated model, on texts, one a line

Everything that is compared runs in one process, one variant after another, many times over; a ratio is the median over
the rounds of (variant / ungated in the same round). Results go to benchmarks/results/gates.json, under their names:
runs add up.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor
from transformers import BertConfig

import offramp
from offramp.models import MultiExitConfig, MultiExitForSequenceClassification
from offramp.models.folding import fold, left_in_order
from offramp.models.gate_order import KeepStatistics, keep_statistics
from offramp.models.gate_settings import GateSettings
from offramp.models.gates import UnitGates
from offramp.models.runs import Flags
from offramp.models.skipping import Skipping
from offramp.tasks.encoding import text_encoder

RESULTS = Path(__file__).parent / "results" / "gates.json"
TOKENS = 32
PATTERNS = 8
"""Different inputs, each with its own gates, that the rounds go through."""
Variants = dict[str, Callable[[int], object]]


def measure(variants: Variants, rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds of each variant, and its ratio to the first; every variant once a round."""
    taken: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(-3, rounds):
        for name, run in variants.items():
            started = time.perf_counter()
            run(number % PATTERNS)
            if number >= 0:
                taken[name].append(1000 * (time.perf_counter() - started))
    first = next(iter(taken.values()))
    found = {}
    for name, times in taken.items():
        low, _, high = quantiles([mine / base for mine, base in zip(times, first, strict=True)], n=4)
        found[name] = {
            "ms": round(median(times), 2),
            "ms_lower_quartile": round(quantiles(times, n=4)[0], 2),
            "ms_upper_quartile": round(quantiles(times, n=4)[2], 2),
            "ratio": round(median([mine / base for mine, base in zip(times, first, strict=True)]), 3),
            "ratio_lower_quartile": round(low, 3),
            "ratio_upper_quartile": round(high, 3),
            "ratio_of_fastest": round(min(times) / min(first), 3),
        }
    return found


class GivenGates:
    """Stands in for `UnitGates.forward`: asks the predictor, so that its time counts, and keeps a given pattern."""

    def __init__(self, gates: UnitGates) -> None:
        self.gates = gates
        self.pattern = torch.empty(0)

    def __call__(self, seen: Tensor) -> Tensor:
        type(self.gates).forward(self.gates, seen)
        return self.pattern


Pattern = list[tuple[Flags, Flags]]
"""For each layer what is kept: heads (B, heads), neurons (B, neurons / block)."""


def give(model: Any, pattern: Pattern) -> None:
    for layer, (heads, neurons) in zip(model.gates.layers, pattern, strict=True):
        for gates, kept in ((layer.heads, heads), (layer.neurons, neurons)):
            if not isinstance(gates.forward, GivenGates):
                gates.forward = GivenGates(gates)
            gates.forward.pattern = torch.from_numpy(kept).float()


def scattered(draw: np.random.Generator, rows: int, units: int, share: float) -> Flags:
    """Each row keeps the share, anywhere: the worst case for slices."""
    kept = np.zeros((rows, units), dtype=bool)
    for row in kept:
        row[draw.permutation(units)[: int(share * units + draw.random())]] = True
    return kept


def ordered(draw: np.random.Generator, rows: int, units: int, share: float) -> Flags:
    """Units differ in how often they are kept, most are nearly constant, and lie in that order, as after folding."""
    rates = np.sort(draw.beta(share, 1 - share, units))[::-1]
    return np.asarray(draw.random((rows, units)) < rates)


def share_of_flops(config: Any, pattern: Pattern, width: int) -> float:
    """Multiply-adds of a pattern, its predictors among them, against those without gates."""
    size, neurons = config.hidden_size, config.intermediate_size
    attention, feed_forward = 4 * size * size + 2 * TOKENS * size, 2 * size * neurons
    kept = mean(heads.mean() * attention + blocks.mean() * feed_forward for heads, blocks in pattern)
    predictors = mean(2 * size * width + width * (heads.shape[1] + blocks.shape[1]) for heads, blocks in pattern)
    return float((kept + predictors / TOKENS) / (attention + feed_forward))


def base_model(block: int | None = None) -> Any:
    torch.manual_seed(0)
    config = MultiExitConfig(backbone_config=BertConfig(), num_labels=2)
    model = MultiExitForSequenceClassification(config).eval()
    if block is not None:
        model.add_gates(GateSettings(0.4, block=block))
    return model


def with_fused_attention(model: Any) -> Any:
    """The ungated rival with query, key and value in one product."""
    for index in range(model.backbone.depth):
        parts, module = model.backbone.parts(index), model.backbone.layer_module(index)
        three = (parts.query, parts.key, parts.value)
        weight, bias = torch.cat([one.weight for one in three]), torch.cat([one.bias for one in three])

        def attend(hidden: Tensor, *_: Any, parts: Any = parts, weight: Any = weight, bias: Any = bias) -> Any:
            fused = torch.nn.functional.linear(hidden, weight, bias).unflatten(-1, (3, parts.heads, -1))
            query, key, value = fused.permute(2, 0, 3, 1, 4)
            gathered = torch.nn.functional.scaled_dot_product_attention(query, key, value)
            return gathered.transpose(1, 2).flatten(2), None

        module.attention.self.forward = lambda hidden, *args, attend=attend, **kwargs: attend(hidden)
    return model


def blocks_of_neurons(rounds: int) -> Iterator[tuple[str, Any]]:
    """Heads, and blocks of 64 neurons, at shares of the FLOPs."""
    ungated, fused, gated = base_model(), with_fused_attention(base_model()), base_model(64)
    masked = copy.deepcopy(gated)
    gated.skipping = Skipping(gated)
    for rows, times in ((1, rounds), (16, max(8, rounds // 4))):
        draw = np.random.default_rng(0)
        inputs = [torch.from_numpy(draw.integers(5, 30000, (rows, TOKENS))) for _ in range(PATTERNS)]
        patterns = {
            f"{share} {name}": [
                [(kind(draw, rows, 12, share), kind(draw, rows, 48, share)) for _ in range(12)] for _ in range(PATTERNS)
            ]
            for share in (0.6, 0.4)
            for name, kind in (("scattered", scattered), ("ordered", ordered))
        }
        every = [(np.ones((rows, 12), dtype=bool), np.ones((rows, 48), dtype=bool))] * 12

        def run(model: Any, given: Sequence[Pattern] | None = None, inputs: Any = inputs) -> Callable[[int], object]:
            def once(number: int) -> object:
                if given is not None:
                    give(model, given[number])
                return model(inputs[number])

            return once

        variants: Variants = {"ungated": run(ungated), "ungated, query key value in one": run(fused)}
        variants["every gate open, by slices"] = run(gated, [every] * PATTERNS)
        variants["0.6 scattered, masked"] = run(masked, patterns["0.6 scattered"])
        variants |= {name: run(gated, given) for name, given in patterns.items()}
        found: dict[str, Any] = measure(variants, times)
        for name, given in patterns.items():
            flops = mean(share_of_flops(gated.backbone.config, each, gated.gates.settings.width) for each in given)
            found[name]["flops"] = round(flops, 3)
        yield f"blocks of 64, batch {rows}", found


def grouped(topics: Flags, of_unit: Any) -> Flags:
    """What units keep together: 30 % are always off, 40 % always on, 30 % as their topic is."""
    kept = topics[:, of_unit % topics.shape[1]].copy()
    kept[:, of_unit >= 300] = False
    kept[:, of_unit < 0] = True
    return kept


def neurons_alone(rounds: int) -> Iterator[tuple[str, Any]]:
    """One gate a neuron, most of them constant and scattered, before and after folding."""
    ungated, plain = base_model(), base_model(1)
    draw = np.random.default_rng(0)
    kinds = {"heads": draw.permutation(np.r_[[-1] * 6, [300] * 3, 0:3]), "neurons": None}
    of_neuron = np.r_[[-1] * 1229, [300] * 922, np.arange(921) % 300]
    kinds["neurons"] = draw.permutation(of_neuron)
    for name, topics in (("each for itself", 300), ("in 12 groups", 12)):

        def drawn(rows: int, topics: int = topics) -> Pattern:
            return [
                tuple(grouped(draw.random((rows, topics)) < 0.5, kinds[kind]) for kind in kinds)  # type: ignore[misc]
                for _ in range(12)
            ]

        calibration, patterns = drawn(512), [drawn(1) for _ in range(PATTERNS)]
        statistics = KeepStatistics(*map(tuple, zip(*calibration, strict=True)))
        unfolded, folded = copy.deepcopy(plain), copy.deepcopy(plain)
        fold(folded, statistics)
        order = [[left_in_order([kept], 0.0, 1) for kept in layer] for layer in calibration]
        left = [[(h[:, o[0]], n[:, o[1]]) for (h, n), o in zip(pattern, order, strict=True)] for pattern in patterns]
        unfolded.skipping, folded.skipping = Skipping(unfolded), Skipping(folded)
        inputs = [torch.from_numpy(draw.integers(5, 30000, (1, TOKENS))) for _ in range(PATTERNS)]

        def run(model: Any, given: Sequence[Pattern], inputs: Any = inputs) -> Callable[[int], object]:
            return lambda number: (give(model, given[number]), model(inputs[number]))

        found: dict[str, Any] = measure(
            {
                "ungated": lambda number, inputs=inputs: ungated(inputs[number]),
                "not folded": run(unfolded, patterns),
                "folded": run(folded, left),
            },
            rounds,
        )
        for variant, given in (("not folded", patterns), ("folded", left)):
            found[variant]["kept"] = round(mean(n.sum() / 3072 for each in given for _, n in each), 3)
        yield f"one gate a neuron, varying {name}, batch 1", found


def trained(folder: Path, texts: Path, rounds: int) -> Iterator[tuple[str, Any]]:
    """A trained model: folded by the first half of the texts, measured on the second."""
    model: Any = offramp.load(folder).eval()
    lines = [line for line in texts.read_text(encoding="utf-8").splitlines() if line.strip()]
    encoder = text_encoder(model)
    rows = encoder(lines)
    half = len(rows) // 2
    calibration = [encoder.pad(rows[at : min(at + 32, half)]) for at in range(0, half, 32)]
    ungated, masked, folded = copy.deepcopy(model), copy.deepcopy(model), copy.deepcopy(model)
    ungated.gates.set_mode("open")
    fold(folded, keep_statistics(model, calibration))
    model.skipping, folded.skipping = Skipping(model), Skipping(folded)
    for batch in (1, 16):
        picked = islice(cycle(range(half, len(rows) - batch + 1, batch)), PATTERNS)
        inputs = [encoder.pad([rows[at + row] for row in range(batch)]) for at in picked]
        variants: Variants = {
            name: lambda number, one=one, inputs=inputs: one(**inputs[number])
            for name, one in (("ungated", ungated), ("masked", masked), ("skipping", model), ("folded", folded))
        }
        found: dict[str, Any] = measure(variants, rounds if batch == 1 else max(8, rounds // 4))
        yield f"{folder.name}, batch {batch}", found


def machine() -> dict[str, Any]:
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        name = names[0] if names else name
    return {
        "processor": name,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "offramp": offramp.__version__,
    }


def table(name: str, found: dict[str, Any]) -> str:
    lines = [f"\n{name:<40}{'ms':>10}{'ratio':>8}   quartiles      FLOPs"]
    for variant, numbers in found.items():
        spread = f"{numbers['ratio_lower_quartile']:.2f} – {numbers['ratio_upper_quartile']:.2f}"
        flops = f"{numbers['flops']:.2f}" if "flops" in numbers else ""
        lines.append(f"  {variant:<38}{numbers['ms']:>10.1f}{numbers['ratio']:>8.2f}   {spread}   {flops:>6}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="folder of a trained gated model")
    parser.add_argument("--texts", type=Path, help="its texts, one a line")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if (arguments.model is None) != (arguments.texts is None):
        parser.error("--model and --texts go together")
    torch.set_num_threads(arguments.threads)
    torch.set_grad_enabled(False)
    results = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.is_file() else {}
    runs = (
        [trained(arguments.model, arguments.texts, arguments.rounds)]
        if arguments.model
        else [blocks_of_neurons(arguments.rounds), neurons_alone(arguments.rounds)]
    )
    for case, found in (each for run in runs for each in run):
        name = f"{case}, {arguments.threads} thread{'s' if arguments.threads > 1 else ''}"
        results[name] = {"machine": machine(), "tokens": None if arguments.model else TOKENS, "variants": found}
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(table(name, found), flush=True)


if __name__ == "__main__":
    main()
