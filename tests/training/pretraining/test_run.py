"""Whole runs: every family, going on after a kill, several processes, and the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

import offramp
from offramp.errors import Interrupted, OfframpError
from offramp.training.pretraining import Corpus, Watching, pretrain
from offramp.training.pretraining.folder import PretrainingFolder
from offramp.training.pretraining.rows import Layout, RowSource
from tests.command_line import Result, run  # noqa: F401
from tests.training.pretraining.small_corpus import SHAPE, plan, small_corpus, small_pairs, small_text

Run = Callable[..., Result]
OFTEN = Watching(log_every=2, score_every=6, save_every=4)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return small_corpus(tmp_path_factory.mktemp("corpus"))


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def log_of(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "pretraining.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def last_exit_loss(folder: Path, corpus: Corpus) -> float:
    """The held-out loss of what Hugging Face opens."""
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    order = json.loads((folder / "pretraining.json").read_text())["plan"]["order"]
    rows = RowSource(corpus.store.held_out, corpus.words, Layout(32, 1, swapping=order), 0).fixed(4096)
    with torch.no_grad():
        logits = model(input_ids=rows.ids, token_type_ids=rows.types).logits
    at = logits.gather(1, rows.positions[..., None].expand(-1, -1, logits.shape[-1]))
    return float(F.cross_entropy(at.flatten(0, 1), rows.targets.flatten()))


@pytest.mark.parametrize("order", [True, False])
@pytest.mark.parametrize("family", ["bert", "albert", "roberta"])
def test_what_is_written_is_what_was_trained(family: str, order: bool, corpus: Corpus, tmp_path: Path) -> None:
    """`AutoModelForMaskedLM` gives the last exit's loss as logged; `AutoModel` and `offramp.load` the same states."""
    shape = {**SHAPE, "model_type": family}
    if family == "albert":
        shape["embedding_size"] = 16
    if family == "roberta":
        shape |= {"type_vocab_size": 2, "pad_token_id": 0, "max_position_embeddings": 66}
    out = tmp_path / family
    pretrain(plan(shape=shape, order=order), corpus, out, watching=OFTEN, quiet=True)
    assert (out / "model.safetensors").stat().st_mode == (out / "config.json").stat().st_mode
    record = json.loads((out / "pretraining.json").read_text())
    assert last_exit_loss(out, corpus) == pytest.approx(record["held_out"]["words"][-1], abs=1e-4)
    assert len(record["held_out"]["words"]) == 4
    assert ("order" in record["held_out"]) is order

    ids = torch.randint(5, 100, (2, 20), generator=torch.Generator().manual_seed(0))
    model = offramp.load(out, num_labels=3)
    states = model(ids, output_hidden_states=True).hidden_states[-1]
    torch.testing.assert_close(states, AutoModel.from_pretrained(out)(ids).last_hidden_state, rtol=1e-4, atol=1e-5)
    assert AutoTokenizer.from_pretrained(out).get_vocab() == corpus.tokenizer.get_vocab()
    assert model.config.backbone_config.hidden_dropout_prob == 0.1  # for fine-tuning
    assert set(model.config.poolings) == {"first" if order else "mean"}  # what was asked of the first token
    if order:  # every exit starts from the pooler that learnt the order
        pooler = weights(out)["albert.pooler.weight" if family == "albert" else f"{family}.pooler.dense.weight"]
        assert all(torch.equal(own.weight, pooler) for own in model.exits.poolers.values())
    assert not (out / "checkpoints").exists()


def test_the_loss_of_every_exit_falls(corpus: Corpus, tmp_path: Path) -> None:
    chosen = plan(steps=150, batch_size=16, groups=2, learning_rate=0.02)
    pretrain(chosen, corpus, tmp_path / "out", watching=Watching(log_every=50, score_every=0), quiet=True)
    training = [entry["training"]["words"] for entry in log_of(tmp_path / "out") if "training" in entry]
    held_out = json.loads((tmp_path / "out" / "pretraining.json").read_text())["held_out"]["words"]
    assert all(loss < 0.7 * training[0][exit] for exit, loss in enumerate(held_out))


@pytest.mark.parametrize(
    "settings",
    [{}, {"dropout": 0.1, "order": False}, {"long_length": 64, "optimiser": "adamw"}, {"pairs": "yes", "groups": 2}],
)
def test_a_run_that_was_stopped_ends_with_the_same_weights(
    settings: dict[str, Any], corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after the second checkpoint, at step 8, and two steps more; all of them are taken again."""
    if "pairs" in settings:
        settings = {**settings, "pairs": str(small_pairs(tmp_path / "pairs.csv"))}
    chosen = plan(**settings)
    pretrain(chosen, corpus, tmp_path / "whole", watching=OFTEN, quiet=True)
    append = PretrainingFolder.append

    def dies(self: PretrainingFolder, entry: dict[str, Any]) -> None:
        append(self, entry)
        if entry["step"] == 10:
            raise RuntimeError("pulled the plug")

    with monkeypatch.context() as patched:
        patched.setattr(PretrainingFolder, "append", dies)
        with pytest.raises(RuntimeError, match="pulled the plug"):
            pretrain(chosen, corpus, tmp_path / "stopped", watching=OFTEN, quiet=True)
    pretrain(chosen, corpus, tmp_path / "stopped", resume=True, watching=OFTEN, quiet=True)
    whole, stopped = weights(tmp_path / "whole"), weights(tmp_path / "stopped")
    assert all(torch.equal(weight, stopped[name]) for name, weight in whole.items())
    assert log_of(tmp_path / "whole") == log_of(tmp_path / "stopped")


def test_ctrl_c_keeps_what_was_learnt(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = PretrainingFolder.append

    def interrupts(self: PretrainingFolder, entry: dict[str, Any]) -> None:
        append(self, entry)
        if entry["step"] == 6 and "training" in entry:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(PretrainingFolder, "append", interrupts)
        with pytest.raises(Interrupted, match="stopped at step 6 of 12; go on with: offramp pretrain --resume"):
            pretrain(plan(), corpus, tmp_path / "out", watching=Watching(2, 0, 100), quiet=True)
    pretrain(plan(), corpus, tmp_path / "out", resume=True, watching=OFTEN, quiet=True)
    pretrain(plan(), corpus, tmp_path / "whole", watching=OFTEN, quiet=True)
    whole, stopped = weights(tmp_path / "whole"), weights(tmp_path / "out")
    assert all(torch.equal(weight, stopped[name]) for name, weight in whole.items())


ARGUMENTS = ["--steps", "12", "--batch-size", "8", "--length", "32", "--learning-rate", "0.01", "--layers", "4"]
ARGUMENTS += ["--width", "32", "--heads", "2", "--neurons", "48", "--positions", "64", "--vocabulary-size", "120"]
ARGUMENTS += ["--held-out", "0.05", "--save-every", "4", "--log-every", "2"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def pretrain_command(folder: Path) -> list[str]:
    text = small_text(folder / "text.txt")
    return ["pretrain", "--text", str(text), "--corpus", str(folder / "corpus"), *ARGUMENTS]


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(run: Run, tmp_path: Path) -> None:  # noqa: F811
    command = pretrain_command(tmp_path)
    assert run(*command, "--out", tmp_path / "one").status == 0
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "offramp"]
    subprocess.run([*torchrun, *command, "--out", str(tmp_path / "two")], env=ENVIRONMENT, check=True)
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name, weight in one.items():
        if "key.bias" not in name and "embeddings" not in name:  # rounding noise, which Adam scales up
            torch.testing.assert_close(weight, two[name], rtol=5e-2, atol=5e-3)


def test_killed_and_resumed_gives_the_same_bits(run: Run, tmp_path: Path) -> None:  # noqa: F811
    command = pretrain_command(tmp_path)
    assert run(*command, "--out", tmp_path / "one").status == 0
    dying = tmp_path / "dying.py"
    dying.write_text(
        "import os, signal, sys\n"
        "from offramp.training.pretraining.folder import PretrainingFolder\n"
        "append = PretrainingFolder.append\n"
        "def dies(self, entry):\n"
        "    append(self, entry)\n"
        "    if entry['step'] == 10: os.kill(os.getpid(), signal.SIGKILL)\n"
        "PretrainingFolder.append = dies\n"
        "from offramp.cli import main\n"
        "main()\n"
    )
    killed = [sys.executable, str(dying), *command, "--out", str(tmp_path / "killed")]
    assert subprocess.run(killed, env=ENVIRONMENT).returncode == -signal.SIGKILL
    assert run("pretrain", "--resume", "--out", tmp_path / "killed").status == 0
    one, again = weights(tmp_path / "one"), weights(tmp_path / "killed")
    assert all(torch.equal(weight, again[name]) for name, weight in one.items())


def test_going_on_from_an_encoder(corpus: Corpus, tmp_path: Path) -> None:
    """Every exit starts from the checkpoint's own head; written as ElasticBERT, every exit keeps its own."""
    pretrain(plan(steps=40), corpus, tmp_path / "first", watching=OFTEN, quiet=True)
    chosen = plan(start=str(tmp_path / "first"), family="elasticbert", steps=1, learning_rate=0.0)
    out = tmp_path / "elastic"
    pretrain(chosen, corpus, out, watching=OFTEN, quiet=True)
    before, after = (
        json.loads((folder / "pretraining.json").read_text())["held_out"]["words"][-1]
        for folder in (tmp_path / "first", out)
    )
    assert after == pytest.approx(before, abs=1e-4)
    tensors = weights(out)
    assert tensors["predictions.transforms.3.dense.weight"].shape == (32, 32)
    assert torch.equal(
        tensors["predictions.transforms.0.dense.weight"],
        weights(tmp_path / "first")["cls.predictions.transform.dense.weight"],
    )
    model = offramp.load(out)
    assert len(model.exits) == 4
    for layer, pooler in enumerate(model.exits.poolers.values()):
        assert torch.equal(pooler.weight, tensors[f"elasticbert.encoder.pooler.{layer}.dense.weight"])
    pretrain(plan(start=str(out), steps=1), corpus, tmp_path / "further", watching=OFTEN, quiet=True)
    assert json.loads((tmp_path / "further" / "config.json").read_text())["model_type"] == "elasticbert"


@pytest.mark.parametrize("start", [True, False])
def test_an_elasticbert_that_was_not_asked_for_the_order_is_opened(start: bool, corpus: Corpus, tmp_path: Path) -> None:
    """It has no poolers; exits read the mean of the tokens, as those of other families do."""
    settings: dict[str, Any] = {"shape": {**SHAPE, "model_type": "elasticbert"}}
    if start:
        pretrain(plan(steps=1), corpus, tmp_path / "bert", watching=OFTEN, quiet=True)
        settings = {"start": str(tmp_path / "bert"), "family": "elasticbert"}
    pretrain(plan(**settings, order=False, steps=1), corpus, tmp_path / "out", watching=OFTEN, quiet=True)
    model = offramp.load(tmp_path / "out", num_labels=3)
    assert set(model.config.poolings) == {"mean"}
    first = weights(tmp_path / "out")["elasticbert.encoder.layer.0.output.dense.weight"]
    assert torch.equal(model.backbone.model.encoder.layer[0].output.dense.weight, first)
    assert "Auto classes" not in (tmp_path / "out" / "README.md").read_text()


def test_text_of_which_nothing_is_held_out(corpus: Corpus, tmp_path: Path) -> None:
    whole = small_corpus(tmp_path, held_out=0.0)
    pretrain(plan(steps=2), whole, tmp_path / "out", watching=Watching(0, 1, 1), quiet=True)
    assert json.loads((tmp_path / "out" / "pretraining.json").read_text())["held_out"] is None
    assert "held-out documents" not in (tmp_path / "out" / "README.md").read_text()
    assert [entry["step"] for entry in log_of(tmp_path / "out")] == [2]
    assert offramp.load(tmp_path / "out").backbone.depth == 4


def test_a_run_is_not_gone_on_with_under_other_settings(corpus: Corpus, tmp_path: Path) -> None:
    folder = PretrainingFolder(tmp_path / "out")
    folder.begin({**plan().to_json(), "corpus": corpus.digest})
    with pytest.raises(OfframpError, match=r"begun with other settings: learning_rate was 0.01, and now is 0.02"):
        pretrain(plan(learning_rate=0.02), corpus, folder.path, resume=True, quiet=True)


def test_a_loss_that_is_no_number_stops_the_run(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(OfframpError, match="not a number any more: lower the learning rate"):
        pretrain(plan(learning_rate=1e20, optimiser="adamw"), corpus, tmp_path / "out", watching=OFTEN, quiet=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "{folder}/absent.txt"], "absent.txt"),
        ([], "holds no tokens yet: name text files (--text)"),
        (["--text", "{folder}/text.txt", "--width", "100", "--heads", "3"], "cannot be shared by 3 heads"),
        (["--text", "{folder}/text.txt", "--batch-size", "100000"], "give more text, or take smaller batches"),
        (["--text", "{folder}/text.txt", "--groups", "20"], "groups, not 20"),
        (["--text", "{folder}/text.txt", "--family", "gpt2"], "gpt2"),
        (["--text", "{folder}/text.txt", "--start", "{folder}"], "no vocabulary that can be read"),
        (["--text", "{folder}/text.txt", "--config", "{folder}/text.txt"], "not valid JSON"),
        (["--text", "{folder}/text.txt", "--vocabulary", "{folder}"], "no vocabulary that can be read"),
        (["--text", "{folder}/text.txt", "--log-every", "-1"], "log every must be 0 or more"),
        (
            ["--text", "{folder}/text.txt", "--batch-size", "4"],
            "held out, too few to be scored in rows of 128",
        ),
        (["--resume"], "there is no pre-training to resume"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, run: Run, tmp_path: Path) -> None:  # noqa: F811
    small_text(tmp_path / "text.txt")
    given = [argument.format(folder=tmp_path) for argument in arguments]
    result = run("pretrain", *given, "--out", tmp_path / "out")
    assert result.status == 2
    assert message in result.err
    assert len([line for line in result.err.splitlines() if line.startswith("error:")]) == 1
    assert "Traceback" not in result.err
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_a_folder_that_is_not_ours_is_left_alone(run: Run, tmp_path: Path) -> None:  # noqa: F811
    small_text(tmp_path / "text.txt")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    for more in ([], ["--overwrite"]):
        result = run("pretrain", "--text", tmp_path / "text.txt", "--out", tmp_path / "out", *more)
        assert result.status == 2
        assert "out" in result.err
    assert (tmp_path / "out" / "thesis.txt").read_text() == "mine"


def test_tokens_alone(run: Run, tmp_path: Path) -> None:  # noqa: F811
    small_text(tmp_path / "text.txt")
    options = ["--only-tokenise", "--out", str(tmp_path / "out"), "--vocabulary-size", "120", "--held-out", "0.05"]
    assert run("pretrain", "--text", tmp_path / "text.txt", *options).status == 0
    assert (tmp_path / "out-corpus" / "tokens" / "tokens.json").is_file()
    assert not (tmp_path / "out").exists()


def test_another_vocabulary_is_not_taken_for_the_one_asked_for(corpus: Corpus, run: Run, tmp_path: Path) -> None:  # noqa: F811
    text = corpus.folder.parent / "text.txt"
    options = ["--only-tokenise", "--corpus", corpus.folder, "--out", tmp_path / "out", "--held-out", "0.05"]
    assert run("pretrain", "--text", text, *options, "--vocabulary-size", "120").status == 0
    for other in (["--vocabulary-size", "100"], ["--vocabulary-size", "120", "--cased"], ["--vocabulary", "unigram"]):
        refused = run("pretrain", "--text", text, *options, *other)
        assert refused.status == 2
        assert "name another --corpus" in refused.err


def test_an_exit_that_was_not_asked_has_no_loss(corpus: Corpus, tmp_path: Path) -> None:
    pretrain(plan(groups=2, steps=4), corpus, tmp_path / "out", watching=Watching(1, 0, 0), quiet=True)
    first = log_of(tmp_path / "out")[0]["training"]["words"]
    assert [loss is None for loss in first] == [False, True, False, False]
