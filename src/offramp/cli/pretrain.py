"""`offramp pretrain`: text to a backbone with an exit after every layer."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from offramp.cli.app import app
from offramp.cli.resuming import refuse_new_settings
from offramp.errors import OfframpError

EXAMPLES = """
Examples:

  offramp pretrain --text corpus/ --out runs/mini

  offramp pretrain --text wiki.txt.xz --text books.parquet --family albert --width 512 --steps 50000 --out runs/albert

  offramp pretrain --text reviews.txt --start bert-base-uncased --family elasticbert --steps 5000 --out runs/elastic

  offramp pretrain --text corpus/ --teacher sentence-transformers/all-MiniLM-L6-v2 --vocabulary-size 16384 --out taught

  offramp pretrain --resume --out runs/mini

  torchrun --nproc-per-node 4 -m offramp pretrain --text corpus/ --batch-size 1024 --out runs/mini
"""

TEXT = "The text"
MODEL = "The model"
LEARNING = "How it learns"
RUN = "The run"


def _text(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=TEXT)


def _model(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=MODEL)


def _learning(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=LEARNING)


def _run(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=RUN)


@app.command(epilog=EXAMPLES)
def pretrain(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Folder to write, for offramp.load and (no ElasticBERT) AutoModel.")],
    text: Annotated[list[Path] | None, _text("File or folder: plain text, .gz, .xz, .parquet; more than once.")] = None,
    corpus: Annotated[
        Path | None, _text("Where the tokens are kept, or lie from an earlier run (default: OUT-corpus).")
    ] = None,
    vocabulary: Annotated[
        str | None, _text("wordpiece or unigram, learnt from the text; or a folder or hub name to take it from.")
    ] = None,
    vocabulary_size: Annotated[
        int | None, _text("Of a new vocabulary (default: 16384), or to cut a taken one to: the text's commonest words.")
    ] = None,
    cased: Annotated[bool, _text("Keep capitals in a new vocabulary.", "--cased")] = False,
    held_out: Annotated[float, _text("Share of the text, in whole documents, that only scores; 0: none.")] = 0.005,
    only_tokenise: Annotated[bool, _text("Make vocabulary and tokens, and stop.", "--only-tokenise")] = False,
    start: Annotated[str | None, _model("Go on from this encoder (folder or hub name) instead of a new one.")] = None,
    config: Annotated[Path | None, _model("A Hugging Face config.json to build a new backbone from.")] = None,
    family: Annotated[str | None, _model("bert, albert, roberta or elasticbert (default: bert, or --start's).")] = None,
    layers: Annotated[int, _model("Of a new backbone.")] = 12,
    width: Annotated[int, _model("Of its hidden states.")] = 256,
    heads: Annotated[int | None, _model("Attention heads (default: one for each 64 of the width).")] = None,
    neurons: Annotated[int | None, _model("Of each feed-forward part (default: 4 times the width).")] = None,
    positions: Annotated[int, _model("The longest input, in tokens.")] = 512,
    steps: Annotated[int, _learning("Optimiser steps.")] = 20_000,
    batch_size: Annotated[int, _learning("Rows a step, over all processes and micro-batches.")] = 256,
    length: Annotated[int, _learning("Tokens a row.")] = 128,
    long_length: Annotated[int | None, _learning("Tokens a row in about one step of ten.")] = None,
    mask_rate: Annotated[float, _learning("Share of the words to guess.")] = 0.15,
    order: Annotated[bool, _learning("Ask for the order of sentences, too.", "--order/--no-order")] = True,
    teacher: Annotated[
        str | None, _learning("An encoder (folder or hub name) whose states every exit learns to give, too.")
    ] = None,
    teacher_weight: Annotated[float, _learning("Of that loss, beside the one of the words.")] = 4.0,
    teacher_share: Annotated[float, _learning("Of a step's rows, how many the teacher is asked about.")] = 1.0,
    pairs: Annotated[
        Path | None, _learning("A table of two texts and how alike they are, which some steps learn from.")
    ] = None,
    pairs_share: Annotated[float, _learning("How many of the steps these are.")] = 0.5,
    equilibrium: Annotated[
        bool,
        _learning("A layer gets the mean, not the sum, of the exits' gradients.", "--equilibrium/--no-equilibrium"),
    ] = True,
    groups: Annotated[
        int | None, _learning("Groups of exits that take turns (2, where there are three); 1: all at every step.")
    ] = None,
    early_weight: Annotated[float, _learning("What every exit's losses count, beside the last's.")] = 1.0,
    optimiser: Annotated[
        str | None, _learning("muon (default for new backbones) or adamw (default with --start).")
    ] = None,
    learning_rate: Annotated[float | None, _learning("Its peak (default: 2e-3 with muon, 1e-4 with --start).")] = None,
    warmup: Annotated[float, _learning("Share of the steps in which the learning rate rises.")] = 0.05,
    weight_decay: Annotated[float, _learning("Of the matrices.")] = 0.05,
    clip: Annotated[float, _learning("Largest norm of the gradient; 0: do not clip.")] = 1.0,
    dropout: Annotated[float, _learning("In the layers, while pre-training.")] = 0.0,
    seed: Annotated[int, _run("Of new weights, rows and masks.")] = 42,
    precision: Annotated[str, _run("auto (bf16 on GPUs that have it), fp32 or bf16.")] = "auto",
    accumulate: Annotated[int, _run("Micro-batches a step: less memory, the same result.")] = 1,
    compile_: Annotated[
        bool | None, _run("Compile layers and heads (default: on GPUs).", "--compile/--no-compile")
    ] = None,
    log_every: Annotated[int, _run("Steps between lines of the log; 0: at the end.")] = 50,
    score_every: Annotated[int, _run("Steps between looks at the held-out text; 0: at the end.")] = 1000,
    save_every: Annotated[int, _run("Steps between checkpoints; 0: none.")] = 1000,
    resume: Annotated[bool, _run("Go on with the run in --out.", "--resume")] = False,
    overwrite: Annotated[bool, _run("Replace the pre-training in --out.", "--overwrite")] = False,
    quiet: Annotated[bool, _run("Show no progress.", "--quiet")] = False,
) -> None:
    """Pre-train an encoder in which every layer learns to be the last one. After Ctrl-C or a kill, --resume goes on."""
    from offramp.training.phase_run import process_state
    from offramp.training.pretraining import PretrainingPlan, Watching, prepare_corpus, pretrain
    from offramp.training.pretraining.folder import PretrainingFolder
    from offramp.training.pretraining.start import check_plan

    folder = PretrainingFolder(out)
    corpus = corpus or out.with_name(f"{out.name}-corpus")
    if resume:
        if folder.is_finished:
            typer.echo(f"{out}: this pre-training is finished", err=True)
            return
        refuse_new_settings(context, {"log_every", "score_every", "save_every", "compile_"})
        begun = folder.read_plan()
        known = {field.name for field in dataclasses.fields(PretrainingPlan)}
        plan = PretrainingPlan(**{key: value for key, value in begun.items() if key in known})
        corpus = Path(begun["corpus_folder"])
    else:
        options = {
            "steps": steps,
            "batch_size": batch_size,
            "length": length,
            "long_length": long_length,
            "mask_rate": mask_rate,
            "order": order,
            "teacher": teacher,
            "teacher_weight": teacher_weight,
            "teacher_share": teacher_share,
            "pairs": None if pairs is None else str(pairs),
            "pairs_share": pairs_share,
            "equilibrium": equilibrium,
            "early_weight": early_weight,
            "optimiser": optimiser or ("adamw" if start else "muon"),
            "learning_rate": (1e-4 if start else 2e-3) if learning_rate is None else learning_rate,
            "warmup": warmup,
            "weight_decay": weight_decay,
            "clip": clip,
            "dropout": dropout,
            "seed": seed,
            "precision": precision,
            "accumulate": accumulate,
        }
        shape = None if start else _shape(config, family, layers, width, heads, neurons, positions)
        depth = int((shape or {}).get("num_hidden_layers", 12))
        options["groups"] = min(2, max(1, depth - 1)) if groups is None else groups
        plan = PretrainingPlan(shape=shape, start=start, family=family, **options)  # type: ignore[arg-type]
        folder.check({}, resume=False, overwrite=overwrite)
        check_plan(plan)
    console = Console(stderr=True, quiet=quiet, soft_wrap=True, highlight=False)
    process = process_state()
    with process.main_process_first():
        prepared = prepare_corpus(
            () if resume else text or (),
            corpus,
            vocabulary or start or teacher or "wordpiece",
            size=vocabulary_size,
            lowercase=not cased,
            held_out=held_out,
        )
    tokens = prepared.about["tokens"]
    if process.is_main_process:
        console.print(f"{corpus}: {tokens['train']:,} tokens to learn from, {tokens['held_out']:,} held out")
    if only_tokenise:
        return
    watching = Watching(log_every, score_every, save_every, compile_)
    pretrain(plan, prepared, out, resume=resume, overwrite=overwrite, watching=watching, quiet=quiet)
    process.destroy_process_group()
    if process.is_main_process:
        console.print(
            f"next: offramp train --backbone {out} --data yours.csv --text TEXT --label LABEL --out runs/yours"
        )


def _shape(
    config: Path | None,
    family: str | None,
    layers: int,
    width: int,
    heads: int | None,
    neurons: int | None,
    positions: int,
) -> dict[str, Any]:
    """The configuration of a new backbone, from a file or from the few numbers that matter."""
    if config is not None:
        from offramp.interop.checkpoint import read_json

        shape = read_json(config)
        if family is not None and shape.get("model_type", family) != family:
            raise OfframpError(f"{config} is of type {shape['model_type']}, and --family says {family}")
        return {"model_type": family or "bert", **shape}
    if width % (heads or max(1, width // 64)):
        raise OfframpError(f"a width of {width} cannot be shared by {heads or width // 64} heads: say --heads")
    shape = {
        "model_type": family or "bert",
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads or max(1, width // 64),
        "intermediate_size": neurons or 4 * width,
        "max_position_embeddings": positions,
    }
    return shape | ({"embedding_size": min(128, width), "hidden_act": "gelu"} if family == "albert" else {})
