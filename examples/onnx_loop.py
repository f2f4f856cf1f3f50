"""Answers a text, or a pair of texts, with a folder that `offramp export` wrote.

    python onnx_loop.py FOLDER "a fine film"

Needs onnxruntime, numpy and tokenizers, and nothing else.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


def leaves(policy, layer, said):
    """Whether to leave after `layer`, by what the exits said so far: logits (1, labels) or, for spans, (2, tokens)."""
    rule, z = policy["policy"], said[-1]
    if rule not in ("entropy", "confidence", "patience", "fixed"):
        sys.exit(f"this loop does not know the rule {rule}: it knows entropy, confidence, patience and fixed")
    if rule in ("patience", "fixed"):  # so many exits in a row repeated the answer of the one before them
        times = policy.get("patience", 0)  # of a fixed layer no other exit is asked
        moves = np.abs(np.diff([w if w.size == 1 else w.argmax(-1) for w in said[-1 - times :]], axis=0))
        return len(moves) == times and (moves < (policy["tolerance"] if z.size == 1 and times else 1)).all()
    # Threshold and temperature are one number, or one for each layer.
    threshold, z = np.resize(policy["threshold"], layer)[-1], z / np.resize(policy["temperature"], layer)[-1]
    log_p = z - np.logaddexp.reduce(z, axis=-1, keepdims=True)
    if rule == "confidence":
        return np.exp(log_p.max(-1)).prod() > threshold
    return -(np.exp(log_p) * log_p).sum(-1).mean() < threshold * (np.log(z.shape[-1]) if policy["normalised"] else 1)


def open_folder(folder):
    """The manifest, a session for each file, and the tokenizer."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.force_spinning_stop", "1")  # idle threads would hold up other sessions
    sessions = {file.name: onnxruntime.InferenceSession(file, options) for file in folder.glob("*.onnx")}
    about = json.loads((folder / "segments.json").read_text(encoding="utf-8"))
    return about, sessions, Tokenizer.from_file(str(folder / "tokenizer.json"))


def answer(about, sessions, tokens):
    """The logits that tokens leave with, and the layer they leave after."""
    given = {"input_ids": [tokens.ids]} | ({"token_type_ids": [tokens.type_ids]} if about["token_types"] else {})
    said, given = [], {"hidden": sessions["embed.onnx"].run(None, given)[0], "attention_mask": [tokens.attention_mask]}
    for layer, file in enumerate(about["layers"], start=1):
        given["hidden"] = sessions[file].run(None, given)[0]
        for exit in [exit for exit in about["exits"] if exit["layer"] == layer and exit["asked"]]:
            said.append(np.atleast_2d(sessions[exit["file"]].run(None, given)[0][0].T))  # (1, labels) or (2, tokens)
            if leaves(about["policy"], layer, said):
                return said[-1], layer
    return said[-1], layer


if __name__ == "__main__":
    about, sessions, tokenizer = open_folder(Path(sys.argv[1]))
    z, layer = answer(about, sessions, tokenizer.encode(*sys.argv[2:]))
    label = about["labels"][z.argmax()] if about["labels"] else z.item() if z.size == 1 else z.argmax(-1)
    print(label, f"{np.exp(z.max(-1) - np.logaddexp.reduce(z, axis=-1)).prod():.4f}", f"layer {layer}", sep="\t")
