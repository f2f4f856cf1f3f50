"""Reads TensorFlow "TensorBundle" (V2) checkpoints with NumPy alone, and names ALBERT's weights as transformers does.

Google released ALBERT as TensorFlow 1 checkpoints. Installing tensorflow only to copy arrays out of them is a heavy
dependency, and the format is small: `PREFIX.index` is a LevelDB-style sorted table of protobuf records which say where
each tensor lies in the files `PREFIX.data-00000-of-0000N`, and those hold the raw values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.errors import OfframpError

Array = npt.NDArray[Any]

_FOOTER_BYTES, _TABLE_MAGIC = 48, 0xDB4775248B80FB57
_TRAILER_BYTES = 5  # after each block: compression type (1 byte), masked CRC-32C (4 bytes)
_STRING, _BFLOAT16 = 7, 14
# TensorFlow's DataType numbers. NumPy has no bfloat16, so its bits are read as integers and widened afterwards.
_STORED = {1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 9: "<i8", 10: "?", _BFLOAT16: "<u2", 19: "<f2"}


def read_tensorflow_checkpoint(prefix: str | Path) -> dict[str, Array]:
    """Every numeric tensor of the checkpoint by its TensorFlow name; bfloat16 comes back as float32.

    String tensors hold TensorFlow's own bookkeeping (the object graph), never weights, so they are left out.
    """
    prefix = str(prefix).removesuffix(".index")  # the path people copy from a listing is that of the index file
    index = Path(f"{prefix}.index")
    if not index.is_file():
        raise OfframpError(f"{index}: no such file; give the prefix of a V2 checkpoint, e.g. DIR/model.ckpt-best")
    try:
        entries = {key.decode(): dict(_fields(record)) for key, record in _index_records(index)}
    except (IndexError, UnicodeDecodeError) as error:
        raise _broken(index, "is not a readable index of a TensorFlow checkpoint") from error
    header = entries.pop("", {})
    if header.get(1, 0) < 1:
        raise _broken(index, "has no checkpoint header")
    if header.get(2, 0) != 0:
        raise OfframpError(f"{index}: is big-endian; save the checkpoint again on a little-endian machine")
    tensors = {}
    for name, entry in entries.items():
        if 7 in entry:
            raise OfframpError(f"{index}: {name} is partitioned into slices; save it again without a partitioner")
        if entry.get(1) != _STRING:
            data = Path(f"{prefix}.data-{entry.get(3, 0):05d}-of-{header[1]:05d}")
            tensors[name] = _read_tensor(data, name, entry)
    return tensors


def _broken(path: Path, what: str) -> OfframpError:
    return OfframpError(f"{path}: {what}; download or copy the checkpoint again")


def _read_tensor(path: Path, name: str, entry: dict[int, Any]) -> Array:
    """The tensor that `entry`, the fields of a BundleEntryProto, places in the data shard at `path`."""
    dtype, offset, size, checksum = (entry.get(number, 0) for number in (1, 4, 5, 6))
    shape = [dict(_fields(dim)).get(1, 0) for number, dim in _fields(entry.get(2, b"")) if number == 2]
    if dtype not in _STORED:
        raise OfframpError(f"{path}: {name} has TensorFlow dtype {dtype}, which is not supported; save it as float32")
    stored = np.dtype(_STORED[dtype])
    if size != math.prod(shape) * stored.itemsize:
        raise _broken(path, f"should hold {size} bytes of {name} by its index, which do not fit the shape {shape}")
    if not path.is_file():
        raise OfframpError(f"{path}: no such file, but the index says it holds {name}; put it beside the index")
    if path.stat().st_size < offset + size:
        raise _broken(path, f"is truncated, {name} should end at byte {offset + size}")
    raw = np.fromfile(path, np.uint8, count=size, offset=offset)  # [size]
    if _masked_crc32c(raw) != checksum:
        raise _broken(path, f"is corrupt, the checksum of {name} does not match")
    values: Array = raw.view(stored)  # [prod(shape)]
    if dtype == _BFLOAT16:
        values = (values.astype(np.uint32) << 16).view(np.float32)  # a bfloat16 is the upper half of a float32
    return values.reshape(shape)


def _index_records(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """The records of the whole table: the header under the empty key, then one record for each tensor."""
    table = path.read_bytes()
    if len(table) < _FOOTER_BYTES or int.from_bytes(table[-8:], "little") != _TABLE_MAGIC:
        raise _broken(path, "is truncated or is not the index of a TensorFlow V2 checkpoint")
    footer = table[-_FOOTER_BYTES:]
    _, position = _varint(footer, 0)
    _, position = _varint(footer, position)  # up to here the handle of the metaindex, which TensorFlow leaves empty
    for _, handle in _block_records(path, table, footer[position:]):
        for key, record in _block_records(path, table, handle):
            if not key.startswith(b"\0"):  # such a key locates one slice of a tensor; the tensor has its own record
                yield key, record


def _block_records(path: Path, table: bytes, handle: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The records of the block at `handle`. A key is stored as what differs from the key before it."""
    start, position = _varint(handle, 0)
    size, _ = _varint(handle, position)
    block = table[start : start + size + _TRAILER_BYTES]
    if len(block) < size + _TRAILER_BYTES:
        raise _broken(path, "is truncated, a block of the table runs past its end")
    if _masked_crc32c(np.frombuffer(block, np.uint8, size + 1)) != int.from_bytes(block[size + 1 :], "little"):
        raise _broken(path, "is corrupt, the checksum of a table block does not match")
    if block[size] != 0:
        raise OfframpError(f"{path}: has compressed (snappy) blocks; save it again with tf.compat.v1.train.Saver")
    restarts = int.from_bytes(block[size - 4 : size], "little")  # restart points serve seeking only
    position, key = 0, b""
    while position < size - 4 - 4 * restarts:
        shared, position = _varint(block, position)
        unshared, position = _varint(block, position)
        length, position = _varint(block, position)
        key = key[:shared] + block[position : position + unshared]
        position += unshared + length
        yield key, block[position - length : position]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """The base-128 number at `position`, and the position after it."""
    value = shift = 0
    while data[position] >= 0x80:
        value |= (data[position] & 0x7F) << shift
        position, shift = position + 1, shift + 7
    return value | data[position] << shift, position + 1


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protobuf message by number: an int for a number, bytes for anything nested."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        if tag & 7 == 0:
            value, position = _varint(message, position)
            yield tag >> 3, value
        else:  # nested bytes, or else the one fixed-width number of these messages: a checksum of 4 bytes
            length, position = _varint(message, position) if tag & 7 == 2 else (4, position)
            chunk, position = message[position : position + length], position + length
            yield tag >> 3, chunk if tag & 7 == 2 else int.from_bytes(chunk, "little")


# CRC-32C is a serial loop over bytes, far too slow in Python for 200 MB of weights. It is also linear, so NumPy runs
# many lanes of bytes side by side from the state 0, and the lanes are then joined in pairs.
_LANE_BYTES = 1024
_CRC_TABLE = np.arange(256, dtype=np.uint32)
for _ in range(8):
    _CRC_TABLE = (_CRC_TABLE >> 1) ^ ((_CRC_TABLE & 1) * np.uint32(0x82F63B78))


def _next_states(states: Array, byte: Array | int) -> Array:
    return np.asarray(_CRC_TABLE[(states ^ byte) & 0xFF] ^ (states >> 8))


def _linear(images: Array, states: Array) -> Array:
    """The linear map that takes bit i to images[i], applied to states [n]."""
    bits = (states[:, None] >> np.arange(32, dtype=np.uint32)) & 1  # [n, 32]
    return np.asarray(np.bitwise_xor.reduce(bits * images, axis=1))


def _masked_crc32c(data: Array) -> int:
    """The checksum of data [bytes] in the rotated form in which TensorFlow stores it."""
    head = data.size % _LANE_BYTES
    first = np.array([0xFFFFFFFF], dtype=np.uint32)
    for byte in data[:head].tolist():
        first = _next_states(first, byte)
    columns = np.ascontiguousarray(data[head:].reshape(-1, _LANE_BYTES).T)  # [lane bytes, lanes]
    states = np.zeros(columns.shape[1], dtype=np.uint32)
    images = np.uint32(1) << np.arange(32, dtype=np.uint32)  # what becomes of each bit after a lane of zero bytes
    for column in columns if states.size else ():
        states = _next_states(states, column)
        images = _next_states(images, 0)
    states = np.append(first, states)
    while states.size > 1:
        states = np.append(np.zeros(states.size % 2, dtype=np.uint32), states)  # a zero state in front changes nothing
        states = _linear(images, states[0::2]) ^ states[1::2]
        images = _linear(images, images)
    crc = int(states[0]) ^ 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# How a variable of Google's ALBERT becomes a parameter of transformers' AlbertForMaskedLM, one rule after another.
_ALBERT_RULES = (
    (r"^module/", ""),  # present in checkpoints exported from TF Hub
    (r"^bert/", "albert/"),
    (r"^cls/predictions/", "predictions/"),
    (r"/transform(er)?/", "/"),
    (r"/pooler/dense/", "/pooler/"),
    (r"/attention_1/(self|output)/", "/attention/"),
    (r"/ffn_1/intermediate/dense/", "/ffn/"),
    (r"/ffn_1/intermediate/output/dense/", "/ffn_output/"),
    (r"(/inner_group_\d+)/LayerNorm/", r"\1/attention/LayerNorm/"),
    (r"(/inner_group_\d+)/LayerNorm_1/", r"\1/full_layer_layer_norm/"),
    (r"/group_(\d+)/inner_group_(\d+)/", r"/albert_layer_groups/\1/albert_layers/\2/"),
    (r"(_embeddings)$", r"\1/weight"),
    (r"/(kernel|gamma|output_weights)$", "/weight"),
    (r"/(beta|output_bias)$", "/bias"),
    (r"/", "."),
)
_ALBERT_PART = re.compile(
    r"\d+|albert|embeddings|(word|position|token_type)_embeddings|LayerNorm|encoder|embedding_hidden_mapping_in|pooler|"
    r"albert_layer_groups|albert_layers|attention|query|key|value|dense|ffn|ffn_output|full_layer_layer_norm|"
    r"predictions|weight|bias"
)


def albert_names(tensors: dict[str, Array]) -> dict[str, Array]:
    """Google's ALBERT variables under transformers' names, without optimiser state and the sentence-order head."""
    renamed = {}
    for name, tensor in tensors.items():
        if re.search(r"(^|/)(adam_m|adam_v|global_step|seq_relationship)(/|$)", name):
            continue
        parameter = name
        for pattern, replacement in _ALBERT_RULES:
            parameter = re.sub(pattern, replacement, parameter)
        if not all(_ALBERT_PART.fullmatch(part) for part in parameter.split(".")):
            raise OfframpError(f"{name}: no variable of pretrained ALBERT; convert a checkpoint that Google released")
        # TensorFlow keeps a dense kernel as [in, out], PyTorch a weight as [out, in].
        renamed[parameter] = np.ascontiguousarray(tensor.T) if name.endswith("/kernel") else tensor
    return renamed
