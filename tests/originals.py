"""Folders as the original programs leave them: `pytorch_model.bin`, old configuration and tokenizer files, arguments.

The weights are those of the golden cases, which the original programs wrote.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.generated import WORDS

TF_ALBERT = Path(__file__).parent / "interop" / "data" / "tf_albert"
GOLDEN = Path(__file__).parent / "golden" / "data"
RELEASED = {"model_type": "elasticbert", "architectures": ["ElasticBertForMaskedLM"], "layer_norm_eps": 1e-8}


def original_folder(folder: Path, case: str, arguments: dict[str, Any] | None = None, **settings: Any) -> Path:
    """What the program behind a golden case saved, with other settings in config.json (None: without that one)."""
    tensors = load_file(GOLDEN / case / "model.safetensors")
    config = json.loads((GOLDEN / case / "config.json").read_text())
    return write(folder, tensors, config | settings, arguments, pieces=case.startswith("elbert"))


def elasticbert_release(folder: Path, **settings: Any) -> Path:
    """Pre-trained weights as on the hub: no prefix, a pooler for each layer, heads of pre-training, no classifiers."""
    saved = load_file(GOLDEN / "elasticbert_dynamic" / "model.safetensors")
    encoder = {name.removeprefix("elasticbert."): t for name, t in saved.items() if name.startswith("elasticbert.")}
    config = json.loads((GOLDEN / "elasticbert_dynamic" / "config.json").read_text())
    heads = {"predictions.bias": torch.zeros(config["vocab_size"])}
    return write(folder, encoder | heads, {**config, **RELEASED, "id2label": None, "label2id": None, **settings})


def elbert_start(folder: Path, **settings: Any) -> Path:
    """What ELBERT's README has one make: a converted ALBERT, and a config.json with the settings of the exits."""
    saved = load_file(GOLDEN / "elbert_c2" / "model.safetensors")
    encoder = {name: tensor for name, tensor in saved.items() if "exit_out_layer" not in name}
    config = json.loads((GOLDEN / "elbert_c2" / "config.json").read_text())
    unsaid: dict[str, Any] = dict.fromkeys(("model_type", "_num_labels", "id2label", "label2id"))
    exits = {"exit_config_path": "/home/somebody/exit_config.json", "weight_name": "dyn", "cnt_thres": 2}
    return write(folder, encoder, config | unsaid | exits | settings, pieces=True)


def write(
    folder: Path,
    tensors: dict[str, Tensor],
    config: dict[str, Any],
    arguments: dict[str, Any] | None = None,
    pieces: bool = False,
) -> Path:
    folder.mkdir(parents=True)
    torch.save(tensors, folder / "pytorch_model.bin")
    (folder / "config.json").write_text(json.dumps({key: v for key, v in config.items() if v is not None}))
    if arguments is not None:
        torch.save(argparse.Namespace(device=torch.device("cpu"), **arguments), folder / "training_args.bin")
    if pieces:
        sentence_pieces(folder / "spiece")
        return folder
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    (folder / "special_tokens_map.json").write_text(json.dumps({"unk_token": "[UNK]", "pad_token": "[PAD]"}))
    return folder


def google_albert(folder: Path, pieces: str = "30k-clean") -> Path:
    """ALBERT as Google released it, in miniature: TensorFlow's files, and a model of sentencepiece."""
    shutil.copytree(TF_ALBERT, folder, ignore=shutil.ignore_patterns("other"))
    sentence_pieces(folder / pieces, ["a fine film", "a dull film", "the film is fine", "fine and dull"], 24)
    return folder


def sentence_pieces(prefix: Path, sentences: Sequence[str] = (" ".join(WORDS[5:]),), size: int = 60) -> None:
    """A model of sentencepiece as ALBERT has it: PREFIX.model and PREFIX.vocab."""
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*sentences] * 20),
        model_prefix=str(prefix),
        vocab_size=size,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]"],
        user_defined_symbols=["[MASK]"],
        minloglevel=2,
    )
