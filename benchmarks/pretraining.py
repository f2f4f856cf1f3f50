"""Make the backbones in the box, and compare ways to pre-train them.

    offramp pretrain --text DIR --corpus corpus --only-tokenise --out runs/none
    python benchmarks/pretraining.py offramp-mini --corpus corpus --out runs
    python benchmarks/pretraining.py offramp-mini-albert --corpus corpus --out runs
    python benchmarks/pretraining.py ablation --corpus corpus --out runs

The first two are what the package ships (docs/explanation/pretraining.md says how good they are); what was cut short
goes on when it is called again. `ablation` trains the same backbone with and without gradient equilibrium, in groups
and with all exits at every step, each for the same time, and writes one JSON with every exit's held-out loss.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

SHAPE = {
    "model_type": "bert",
    "num_hidden_layers": 12,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "max_position_embeddings": 512,
    "initializer_range": 0.04,
}
ALBERT = {**SHAPE, "model_type": "albert", "embedding_size": 128, "hidden_act": "gelu"}
COMMON: dict[str, Any] = {"batch_size": 1024, "length": 128, "order": False, "warmup": 0.02}
PLANS: dict[str, list[dict[str, Any]]] = {
    "offramp-mini": [
        {"shape": SHAPE, "steps": 8_000, "learning_rate": 5e-3},
        {"steps": 6_000, "learning_rate": 1.5e-3, "groups": 4, "long_length": 512, "seed": 43},
    ],
    "offramp-mini-albert": [{"shape": ALBERT, "steps": 6_000, "learning_rate": 2e-3, "groups": 4, "long_length": 512}],
}
"""Stage after stage, each from the weights of the one before."""
PLAIN: dict[str, Any] = {**COMMON, "shape": SHAPE, "learning_rate": 4e-3}
ARMS: dict[str, dict[str, Any]] = {
    "equilibrium, 2 groups": {"equilibrium": True, "groups": 2},
    "equilibrium, all exits": {"equilibrium": True, "groups": 1},
    "sum, 2 groups": {"equilibrium": False, "groups": 2},
    "sum, all exits": {"equilibrium": False, "groups": 1},
}
TIMING_STEPS = 150
"""Steps to learn from how long one takes."""


def make(name: str, arguments: argparse.Namespace) -> None:
    """All stages of one backbone; those that are through are not run again."""
    stages = PLANS[name]
    before: str | None = None
    for number, settings in enumerate(stages, start=1):
        out = name if number == len(stages) else f"{name}-stage{number}"
        start = {} if before is None else {"start": before, "optimiser": "muon"}
        if not (arguments.out / out / "pretraining.json").is_file():
            pretrain_one(out, {**COMMON, **settings, **start}, arguments)
        before = str(arguments.out / out)


def pretrain_one(name: str, plan: dict[str, Any], arguments: argparse.Namespace, log_every: int = 50) -> None:
    from offramp.training.pretraining import PretrainingPlan, Watching, prepare_corpus, pretrain

    corpus = prepare_corpus((), arguments.corpus)
    out = arguments.out / name
    watching = Watching(log_every=log_every, score_every=arguments.score_every, save_every=arguments.save_every)
    resume = (out / "checkpoints" / "plan.json").is_file()
    pretrain(PretrainingPlan(**plan), corpus, out, resume=resume, overwrite=not resume, watching=watching)


def step_seconds(folder: Path) -> float:
    """From the log of a run: how long a step takes once everything is compiled."""
    lines = [json.loads(line) for line in (folder / "pretraining.jsonl").read_text(encoding="utf-8").splitlines()]
    logged = [(line["step"], line["seconds"]) for line in lines if "training" in line]
    (first, early), (last, late) = logged[len(logged) // 2], logged[-1]
    return float((late - early) / (last - first))


def ablation(arguments: argparse.Namespace) -> None:
    """Each arm takes as many steps as fit into the same time, by the length of a step that was measured first."""
    import torch

    found: dict[str, Any] = {"seconds_each": arguments.seconds, "plan": PLAIN, "arms": {}}
    for name, settings in ARMS.items():
        folder = name.replace(", ", "-").replace(" ", "-")
        pretrain_one(f"{folder}-timing", {**PLAIN, **settings, "steps": TIMING_STEPS}, arguments, log_every=25)
        steps = round(arguments.seconds / step_seconds(arguments.out / f"{folder}-timing"))
        pretrain_one(folder, {**PLAIN, **settings, "steps": steps}, arguments)
        record = json.loads((arguments.out / folder / "pretraining.json").read_text(encoding="utf-8"))
        found["arms"][name] = {
            **settings,
            "steps": steps,
            "step_ms": round(1000 * step_seconds(arguments.out / folder), 2),
            "tokens_seen": record["tokens_seen"],
            "held_out": record["held_out"],
        }
        found |= {"device": record["device"], "versions": record["versions"]}
        print(name, found["arms"][name], flush=True)
        torch.compiler.reset()
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*PLANS, "ablation"])
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=45, help="for each arm of the ablation")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/pretraining/ablation.json"))
    parser.add_argument("--score-every", type=int, default=2000)
    parser.add_argument("--save-every", type=int, default=2000)
    arguments = parser.parse_args()
    if arguments.what == "ablation":
        ablation(arguments)
    else:
        make(arguments.what, arguments)


if __name__ == "__main__":
    main()
