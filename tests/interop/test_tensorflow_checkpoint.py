"""The checkpoints under data/tf_albert were written, and their expected.npz read back, by tensorflow itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from offramp.errors import OfframpError
from offramp.interop.tensorflow_checkpoint import albert_names, read_tensorflow_checkpoint

FIXTURE = Path(__file__).parent / "data" / "tf_albert"
INDEX = "model.ckpt-best.index"
DATA = "model.ckpt-best.data-00000-of-00001"
LAYER = "bert/encoder/transformer/group_0/inner_group_0/"
HF_LAYER = "albert.encoder.albert_layer_groups.0.albert_layers.0."


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [("model.ckpt-best", "expected.npz"), (INDEX, "expected.npz"), ("other/dtypes.ckpt", "other/expected.npz")],
)
def test_tensors_are_bit_for_bit_what_tensorflow_reads(prefix: str, expected: str) -> None:
    tensors = read_tensorflow_checkpoint(FIXTURE / prefix)
    with np.load(FIXTURE / expected) as arrays:
        for name, array in arrays.items():
            assert (tensors[name].dtype, tensors[name].shape) == (array.dtype, array.shape), name
            assert tensors[name].tobytes() == array.tobytes(), name


def test_string_tensors_are_left_out() -> None:
    with np.load(FIXTURE / "other/expected.npz") as arrays:
        assert set(read_tensorflow_checkpoint(FIXTURE / "other/dtypes.ckpt")) == set(arrays)


def test_a_partitioned_variable_is_refused_by_name() -> None:
    with pytest.raises(OfframpError, match=r"sliced\.ckpt\.index: table is partitioned"):
        read_tensorflow_checkpoint(FIXTURE / "other/sliced.ckpt")


@pytest.mark.parametrize(("model", "prefix"), [("AlbertModel", "albert."), ("AlbertForMaskedLM", "")])
def test_names_and_shapes_are_those_of_transformers(model: str, prefix: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.AlbertConfig(**json.loads((FIXTURE / "albert_config.json").read_text()))
    expected = {
        prefix + name: tuple(tensor.shape)
        for name, tensor in getattr(transformers, model)(config).state_dict().items()
        if not name.startswith("predictions.decoder.")  # tied to the word embeddings and to predictions.bias
    }
    renamed = albert_names(read_tensorflow_checkpoint(FIXTURE / "model.ckpt-best"))
    absent = "predictions." if model == "AlbertModel" else "albert.pooler."  # the part this class does not have
    assert {name: array.shape for name, array in renamed.items() if not name.startswith(absent)} == expected


@pytest.mark.parametrize(
    ("name", "parameter", "transposed"),
    [
        (LAYER + "attention_1/self/query/kernel", HF_LAYER + "attention.query.weight", True),
        (LAYER + "ffn_1/intermediate/dense/kernel", HF_LAYER + "ffn.weight", True),
        (LAYER + "ffn_1/intermediate/output/dense/kernel", HF_LAYER + "ffn_output.weight", True),
        (LAYER + "LayerNorm_1/beta", HF_LAYER + "full_layer_layer_norm.bias", False),
        ("bert/embeddings/word_embeddings", "albert.embeddings.word_embeddings.weight", False),
        ("bert/embeddings/LayerNorm/gamma", "albert.embeddings.LayerNorm.weight", False),
        ("bert/pooler/dense/kernel", "albert.pooler.weight", True),
        ("cls/predictions/output_bias", "predictions.bias", False),
    ],
)
def test_values_arrive_under_the_right_name(name: str, parameter: str, transposed: bool) -> None:
    array = np.load(FIXTURE / "expected.npz")[name]
    renamed = albert_names(read_tensorflow_checkpoint(FIXTURE / "model.ckpt-best"))[parameter]
    np.testing.assert_array_equal(renamed, array.T if transposed else array)
    assert renamed.flags.c_contiguous


def test_hub_prefix_and_further_groups_are_renamed() -> None:
    name = "module/bert/encoder/transformer/group_2/inner_group_1/LayerNorm/gamma"
    parameter = "albert.encoder.albert_layer_groups.2.albert_layers.1.attention.LayerNorm.weight"
    assert list(albert_names({name: np.ones(8)})) == [parameter]


@pytest.mark.parametrize("name", ["output_weights", "bert/embeddings/layer_normalization/beta", "beta1_power"])
def test_a_variable_that_pretrained_albert_lacks_is_refused(name: str) -> None:
    with pytest.raises(OfframpError, match=f"^{name}: "):
        albert_names({name: np.ones(8)})


def flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


@pytest.mark.parametrize(
    ("file", "damage", "said"),
    [
        (INDEX, lambda content: content[: len(content) // 2], "truncated"),
        (INDEX, lambda content: np.random.default_rng(0).bytes(len(content)), "not the index"),
        (INDEX, lambda content: b"\xff" * (len(content) - 8) + content[-8:], "corrupt"),
        (INDEX, lambda content: flipped(content, 100), "corrupt"),
        (INDEX, None, "no such file"),
        (DATA, lambda content: content[:-1], "truncated"),
        (DATA, lambda content: flipped(content, 2000), "corrupt"),
        (DATA, None, "no such file"),
    ],
)
def test_damage_is_told_in_one_line_with_the_file(
    tmp_path: Path, file: str, damage: Callable[[bytes], bytes] | None, said: str
) -> None:
    shutil.copytree(FIXTURE, tmp_path, dirs_exist_ok=True)
    (tmp_path / file).unlink()
    if damage:
        (tmp_path / file).write_bytes(damage((FIXTURE / file).read_bytes()))
    with pytest.raises(OfframpError) as caught:
        read_tensorflow_checkpoint(tmp_path / "model.ckpt-best")
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / file}: ")
    assert said in message
    assert "\n" not in message
