"""Checkpoints of DeeBERT and RomeBERT (the released code and its port): a main head, and a highway for each layer."""

from __future__ import annotations

from offramp.interop.checkpoint import Checkpoint
from offramp.interop.dialect import (
    Translation,
    Wishes,
    backbone_config,
    family_by_prefix,
    label_options,
    only_number,
    refuse_exit_options,
    rows,
    source_of,
)
from offramp.models import MultiExitConfig
from offramp.policies import Entropy

UNUSED = r"slow_(bert|roberta|classifier)\.|.*position_ids$"


def recognises(checkpoint: Checkpoint) -> bool:
    return checkpoint.has(r"(bert|roberta)\.encoder\.highway\.")


def translate(checkpoint: Checkpoint, wishes: Wishes) -> Translation:
    """Highways 1 … n-1 and the main head become exits 1 … n.

    The released code never trains highway n, but asks it too: where it happens to be certain, it answers at random. It
    is dropped, unless `legacy_last_exit` wants the original's behaviour: then it is one more exit after layer n, before
    the main head.
    """
    refuse_exit_options(checkpoint, wishes)
    backbone = family_by_prefix(checkpoint)
    encoder = backbone_config(checkpoint, backbone)
    depth, prefix = encoder.num_hidden_layers, backbone.prefix
    highways = depth if wishes.legacy_last_exit else depth - 1
    exits = [f"{prefix}encoder.highway.{i}" for i in range(highways)]
    config = MultiExitConfig(
        backbone_config=encoder,
        exit_layers=[*range(1, highways + 1), depth],
        exit_dropout=encoder.hidden_dropout_prob,
        **label_options(checkpoint, rows(checkpoint, "classifier.weight")),
    )
    poolers = [f"{exit}.pooler.dense" for exit in exits] + [f"{prefix}pooler.dense"]
    classifiers = [f"{exit}.classifier" for exit in exits] + ["classifier"]
    dropped = rf"{prefix}encoder\.highway\.{depth - 1}\." if highways < depth else r"$^"
    if wishes.legacy_last_exit:
        config.untrained_exits = [depth - 1]
    threshold = only_number(checkpoint, "early_exit_entropy")
    leaves = threshold is not None and threshold > 0 and config.num_labels != 1  # -1, its default, is never to leave
    return Translation(
        config,
        source_of(prefix, poolers, classifiers),
        ignored=rf"{UNUSED}|{dropped}",
        policy=Entropy(threshold) if leaves else None,  # type: ignore[arg-type]
    )
