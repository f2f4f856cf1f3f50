"""`pretrain`: text to a backbone that has an exit after every layer; and going on after a kill."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from offramp.errors import Interrupted, OfframpError
from offramp.training.about_run import about_this_run
from offramp.training.phase_run import choose_precision, process_state
from offramp.training.pretraining.corpus import Corpus
from offramp.training.pretraining.course import Course
from offramp.training.pretraining.folder import PretrainingFolder
from offramp.training.pretraining.groups import exit_groups, group_at
from offramp.training.pretraining.model import PretrainingModel
from offramp.training.pretraining.pairs import Pairs, read_pairs
from offramp.training.pretraining.plan import PretrainingPlan
from offramp.training.pretraining.scoring import held_out_losses, held_out_rows
from offramp.training.pretraining.start import starting_model
from offramp.training.pretraining.stepping import Stepper
from offramp.training.pretraining.tally import Tally
from offramp.training.progress import StopSignal


@dataclass(frozen=True)
class Watching:
    """What does not change the result: how often to look, log and save (0: never), and whether to compile."""

    log_every: int = 50
    score_every: int = 1000
    save_every: int = 1000
    compile: bool | None = None
    """None: on GPUs."""
    stop_at: int | None = None
    """Stop after this step, as Ctrl-C would."""

    def __post_init__(self) -> None:
        for name in ("log_every", "score_every", "save_every"):
            if getattr(self, name) < 0:
                raise OfframpError(f"{name.replace('_', ' ')} must be 0 or more, not {getattr(self, name)}")


def pretrain(
    plan: PretrainingPlan,
    corpus: Corpus,
    out: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    watching: Watching | None = None,
    quiet: bool = False,
) -> PretrainingModel:
    """Pre-train a backbone and write it to the folder `out`.

    Args:
        plan: what decides the result.
        corpus: tokens and their vocabulary, by `prepare_corpus`.
        out: a folder to write, which `offramp.load` and `AutoModel` open.
        resume: go on from the newest checkpoint in `out`; the weights will be those of a run that was never stopped.
        overwrite: replace an earlier pre-training in `out`.

    >>> corpus = prepare_corpus(["text.txt"], "corpus")
    >>> shape = {"model_type": "bert", "num_hidden_layers": 12, "hidden_size": 256, "num_attention_heads": 4}
    >>> pretrain(PretrainingPlan(shape=shape), corpus, "runs/mine")
    """
    folder, process = PretrainingFolder(Path(out)), process_state()
    pairs = read_pairs(plan.pairs, corpus.tokenizer) if plan.pairs else None
    settings = {**plan.to_json(), "corpus": corpus.digest}
    settings |= {"pairs_digest": pairs.digest} if pairs else {}
    folder.check(settings, resume, overwrite)
    console = Console(stderr=True, quiet=quiet or not process.is_main_process, soft_wrap=True, highlight=False)
    model = starting_model(plan, corpus.tokenizer).to(process.device)
    if model.teacher is not None:
        model.teacher.to(process.device)
    run = _Run(plan, corpus, folder, watching or Watching(), console, model, pairs)
    if not resume:
        process.wait_for_everyone()
        if process.is_main_process:
            folder.begin({**settings, "corpus_folder": str(corpus.folder.absolute())})
    run.carry_out(resume)
    return model


class _Run:
    def __init__(
        self,
        plan: PretrainingPlan,
        corpus: Corpus,
        folder: PretrainingFolder,
        watching: Watching,
        console: Console,
        model: PretrainingModel,
        pairs: Pairs | None,
    ) -> None:
        self.plan, self.corpus, self.folder = plan, corpus, folder
        self.watching, self.console, self.model = watching, console, model
        self.process = process_state()
        parts = self.process.num_processes * plan.accumulate
        if plan.batch_size % parts:
            raise OfframpError(f"{plan.batch_size} rows a step cannot be dealt out evenly to {parts} parts")
        self.course = Course(corpus.store.train, corpus.words, plan, parts, pairs)
        self.scored = held_out_rows(corpus.store.held_out, corpus.words, plan.length, plan.order)
        self.held_out: dict[str, Any] | None = None
        self.groups = exit_groups(model.backbone.depth, plan.groups)
        self.stepper = Stepper(model, plan, choose_precision(plan.precision) == "bf16")
        compiled = watching.compile if watching.compile is not None else self.process.device.type == "cuda"
        if compiled:
            model.compile_parts()

    def carry_out(self, resume: bool) -> None:
        first, before = self._resumed() if resume else (0, 0.0)
        started = time.perf_counter() - before
        tally = Tally(self.model.backbone.depth, self.model.kinds(), self.process.device)
        self.model.train()
        with StopSignal() as stop, self.course.read_ahead(first, self.plan.steps) as rows_of_steps:
            for step, rows in enumerate(rows_of_steps, start=first):
                exits = group_at(self.course.turn(step), self.groups)
                if self.plan.dropout:
                    torch.manual_seed(hash((self.plan.seed, step, self.process.process_index)))
                losses = self.stepper.step(rows, exits, self.plan.rate_at(step))
                tally.add(exits, losses, self.model.kinds_of(type(rows)))
                done = step + 1
                last = done == self.plan.steps
                if due(done, self.watching.log_every) or last:
                    self._log(done, tally, time.perf_counter() - started)
                if due(done, self.watching.score_every) or last:
                    self._score(done, time.perf_counter() - started)
                asked = stop.asked_anywhere(self.process.num_processes, self.process.device)
                asked = asked or done == self.watching.stop_at
                if not last and self.watching.save_every and (asked or due(done, self.watching.save_every)):
                    self._save(done, time.perf_counter() - started)
                if asked and not last:
                    raise Interrupted(self._how_to_go_on(done))
        self._finish(time.perf_counter() - started)

    def _resumed(self) -> tuple[int, float]:
        """The step to go on with, and the seconds that were spent before it."""
        state = self.folder.newest()
        if state is None:
            return 0, 0.0
        self.stepper.restore(state)
        self.console.print(f"going on from step {state['step']:,}")
        if self.process.is_main_process:
            self.folder.cut_log(state["step"])
        return state["step"], state["seconds"]

    def _save(self, step: int, seconds: float) -> None:
        if self.process.is_main_process:
            self.folder.save({"step": step, "seconds": seconds, **self.stepper.state()})

    def _log(self, step: int, tally: Tally, seconds: float) -> None:
        losses = tally.means()
        if any(loss is not None and not math.isfinite(loss) for kind in losses.values() for loss in kind):
            raise OfframpError(f"step {step}: the loss is not a number any more: lower the learning rate")
        if self.process.is_main_process:
            entry = {"step": step, "tokens": self.course.tokens_before(step), "seconds": round(seconds, 2)}
            self.folder.append({**entry, "learning_rate": self.plan.rate_at(step - 1), "training": losses})

    def _score(self, step: int, seconds: float) -> None:
        if self.scored is None:
            self.console.print(f"step {step:,} of {self.plan.steps:,}  {seconds:,.0f} s  no text is held out")
            return
        self.held_out = losses = held_out_losses(self.model, self.scored)
        if self.process.is_main_process:
            self.folder.append({"step": step, "seconds": round(seconds, 2), "held_out": losses})
        by_exit = " ".join(f"{loss:5.2f}" for loss in losses["words"])
        self.console.print(
            f"step {step:,} of {self.plan.steps:,}  {seconds:,.0f} s  held-out loss of each exit {by_exit}"
        )

    def _how_to_go_on(self, step: int) -> str:
        if not self.watching.save_every:
            return f"stopped at step {step} of {self.plan.steps}; nothing was kept"
        how = f"offramp pretrain --resume --out {self.folder.path}"
        return f"stopped at step {step} of {self.plan.steps}; go on with: {how}"

    def _finish(self, seconds: float) -> None:
        self.stepper.into_model()
        if not self.process.is_main_process:
            return
        backbone = self.model.backbone
        record = {
            "plan": self.plan.to_json(),
            "family": self.plan.family or backbone.family,
            "layers": backbone.depth,
            "hidden_size": backbone.hidden_size,
            "parameters": sum(parameter.numel() for parameter in backbone.parameters()),
            "corpus": self.corpus.about,
            "held_out": self.held_out,
            "tokens_seen": self.course.tokens_before(self.plan.steps),
            "seconds": round(seconds, 1),
            "precision": choose_precision(self.plan.precision),
            **about_this_run(self.process.num_processes),
        }
        self.folder.finish(self.model, self.corpus.tokenizer, self.plan, record)
        self.console.print(f"{self.folder.path}: pre-trained in {seconds:,.0f} s")


def due(step: int, every: int) -> bool:
    """Whether what is done every so many steps is done after this one."""
    return every > 0 and step % every == 0
