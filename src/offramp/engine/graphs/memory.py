"""Device memory that graphs read and write: fixed addresses, made once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from select import select
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offramp.engine.graphs.sizes import most_tiles
from offramp.policies import State

LANES = 3
"""Of rows that came in, and of those who stay when others have left, and again."""
NEVER_FINITE = 1 << 20
"""The mark of a row that was not finite before the first layer; after n layers it is n less."""
TOLD = 1024
"""Numbers that a kernel writes to the host one by one; more are faster in one copy."""


@dataclass(frozen=True)
class Rows:
    """Where the rows of a batch lie. All int32."""

    counts: Tensor  # (4,) rows, tokens, tiles, nothing
    start: Tensor  # (R,)
    length: Tensor  # (R,)
    row_of: Tensor  # (T,)
    tile_query: Tensor  # (tiles,)
    tile_begin: Tensor
    tile_end: Tensor
    poison: Tensor  # (R,) 0, or the mark of the first layer after which a hidden state was not finite

    @classmethod
    def empty(cls, tokens: int, rows: int, device: torch.device) -> Rows:
        tiles = most_tiles(tokens, rows)
        sizes = (4, rows, rows, tokens, tiles, tiles, tiles, rows)
        return cls(*(torch.zeros(size, dtype=torch.int32, device=device) for size in sizes))


@dataclass(frozen=True)
class Pool:
    """Rows that wait for a stage."""

    rows: Rows
    hidden: Tensor  # (T, H)
    state: State
    """What the policy knows of each row, (R, …)."""


@dataclass(frozen=True)
class Lane:
    """Rows that go through stage after stage together, whoever has left."""

    rows: Rows
    slot: Slot
    states: list[State]
    """What the policy knows of each row before each stage's exits."""


@dataclass(frozen=True)
class Places:
    """Where rows that stay are going. All int32."""

    row: Tensor  # (R,) -1 for those who leave
    start: Tensor  # (R,)
    tile: Tensor  # (R,)

    @classmethod
    def empty(cls, rows: int, device: torch.device) -> Places:
        return cls(*(torch.zeros(rows, dtype=torch.int32, device=device) for _ in range(3)))


class Scratch:
    """What a layer needs while it runs; every stage uses the same."""

    def __init__(self, tokens: int, widths: dict[str, int], dtype: torch.dtype, device: torch.device) -> None:
        self._flat = {name: torch.zeros(tokens * width, dtype=dtype, device=device) for name, width in widths.items()}

    def __call__(self, name: str, tokens: int, width: int) -> Tensor:
        return self._flat[name][: tokens * width].view(tokens, width)


class Slot:
    """What an exit tells the host: for each row the exit it left by, or -1, and the logits it left with."""

    def __init__(self, labels: int, exits: int, rows: int, device: torch.device) -> None:
        self.labels = labels
        size = rows * (1 + exits * labels)
        self.words = torch.zeros(size, dtype=torch.int32, device=device)
        pinned = device.type == "cuda"
        self.host = torch.zeros(size, dtype=torch.int32, pin_memory=pinned)
        self.seen: NDArray[np.int32] = self.host.numpy()
        self.ticks = torch.zeros(1, dtype=torch.int32, device=device)
        """Counts the decisions; its copy arrives after what was decided."""
        self.host_ticks = torch.zeros(1, dtype=torch.int32, pin_memory=pinned)
        self.seen_ticks: NDArray[np.int32] = self.host_ticks.numpy()
        self.expected = 0
        """Decisions that were launched."""
        self._copied = False
        """Whether those of the rows before were sent by copies of everything."""

    def exits(self, rows: int) -> Tensor:
        return self.words[:rows]

    def logits(self, rows: int, exit: int = 0) -> Tensor:
        """Of a recording runner, each exit has its own."""
        return self._logits(self.words, rows, exit)

    def host_exits(self, rows: int) -> Tensor:
        return self.host[:rows]

    def host_logits(self, rows: int) -> Tensor:
        return self._logits(self.host, rows, 0)

    def _logits(self, words: Tensor, rows: int, exit: int) -> Tensor:
        size = rows * self.labels
        return words[rows + exit * size : rows + (exit + 1) * size].view(torch.float32).view(rows, self.labels)

    def is_told(self, rows: int) -> bool:
        """Whether so little is decided that a kernel writes it to the host by itself."""
        return rows * self.labels <= TOLD

    def forget(self, rows: int) -> None:
        """Nobody has left yet, as far as the host knows."""
        if self._copied:
            self.wait(self.expected)  # a late copy would bring back who left before
        self._copied = not self.is_told(rows)
        self.seen[:rows] = -1

    def send(self, rows: int, exits: int = 1) -> None:
        used = rows * (1 + exits * self.labels)
        self.host[:used].copy_(self.words[:used], non_blocking=True)
        self.host_ticks.copy_(self.ticks, non_blocking=True)

    def has(self, tick: int) -> bool:
        """Whether that many decisions have arrived; after 2³¹ of them the device counts on from -2³¹."""
        missing = (tick - int(self.seen_ticks[0])) % 2**32
        return missing == 0 or missing >= 2**31

    def wait(self, tick: int) -> None:
        """Until that many decisions have arrived."""
        turns = 0
        while not self.has(tick):
            turns += 1
            if turns > 50:
                select([], [], [], 0)  # lets other threads run; sleep(0) would take 50 µs
            if turns % 100_000 == 0:
                torch.cuda.current_stream().query()  # raises where the device has failed

    def read(self, rows: int, count: int, exits: int = 1) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Exits (n,) and logits (n, C), of a recording runner (exits, n, C)."""
        words = self.seen
        logits = words[rows : rows * (1 + exits * self.labels)].view(np.float32).reshape(exits, rows, self.labels)
        return words[:count].copy(), logits[:, :count].copy()


class Intake:
    """The first stage's rows: the host sends lengths and tokens, and the device finds where everything lies."""

    STAGING = 3
    """Copies that may be under way while the next is filled."""

    def __init__(
        self, tokens: int, rows: int, template: State, device: torch.device, stream: torch.cuda.Stream
    ) -> None:
        self._stream = stream
        self._words = torch.zeros(4 + rows + 2 * tokens, dtype=torch.int32, device=device)
        self._staging = [torch.zeros(len(self._words), dtype=torch.int32, pin_memory=True) for _ in range(self.STAGING)]
        self._copied = [torch.cuda.Event() for _ in range(self.STAGING)]
        self._turn = 0
        self._layouts: dict[tuple[int, int], tuple[list[NDArray[np.int32]], Tensor, Tensor]] = {}
        self.rows = replace(Rows.empty(tokens, rows, device), counts=self._words[:4], length=self._words[4 : 4 + rows])
        self.first_tile = torch.zeros(rows, dtype=torch.int32, device=device)
        self.positions = torch.zeros(tokens, dtype=torch.int32, device=device)
        self.state = state_buffers(template, rows, device)
        """What the policy knows of each row before the first stage."""
        self._staged_state = [
            [torch.zeros_like(leaf, device="cpu").pin_memory() for leaf in leaves(self.state)]
            for _ in range(self.STAGING)
        ]

    def most_rows(self, tokens: int) -> int:
        """Of a bucket."""
        return min(tokens, len(self.first_tile))

    def tokens(self, tokens: int) -> tuple[Tensor, Tensor]:
        """Ids and token types, as they lie for a bucket: behind the lengths of as many rows as it can have."""
        first = 4 + self.most_rows(tokens)
        return self._words[first : first + tokens], self._words[first + tokens : first + 2 * tokens]

    def _layout(self, turn: int, bucket: int) -> tuple[list[NDArray[np.int32]], Tensor, Tensor]:
        """Counts, lengths, ids and types in a staging memory, and what to copy where."""
        if (turn, bucket) not in self._layouts:
            ends = [4, 4 + self.most_rows(bucket)]
            ends += [ends[1] + bucket, ends[1] + 2 * bucket]
            sections = np.split(self._staging[turn].numpy()[: ends[-1]], ends[:-1])
            self._layouts[turn, bucket] = sections, self._staging[turn][: ends[-1]], self._words[: ends[-1]]
        return self._layouts[turn, bucket]

    def fill(self, bucket: int, lengths: NDArray[Any], ids: NDArray[Any], types: NDArray[Any] | None) -> None:
        """Start the rows' way to the device."""
        turn = self._turn = (self._turn + 1) % self.STAGING
        self._copied[turn].synchronize()
        (counts, to_lengths, to_ids, to_types), staging, words = self._layout(turn, bucket)
        rows, tokens = len(lengths), len(ids)
        counts[0], counts[1] = rows, tokens
        to_lengths[:rows] = lengths
        to_ids[:tokens] = ids
        to_types[:tokens] = 0 if types is None else types
        words.copy_(staging, non_blocking=True)
        self._copied[turn].record(self._stream)

    def fill_state(self, state: State) -> None:
        """The same for what the policy knows of the rows that were filled in last."""
        for own, staged, room in zip(leaves(state), self._staged_state[self._turn], leaves(self.state), strict=True):
            staged[: len(own)].copy_(own)
            room[: len(own)].copy_(staged[: len(own)], non_blocking=True)
            self._copied[self._turn].record(self._stream)


def state_buffers(template: State, rows: int, device: torch.device) -> State:
    """Room for the state of so many rows, of the template's kind."""
    if isinstance(template, tuple):
        return tuple(state_buffers(part, rows, device) for part in template)
    if template is None:
        return None
    return torch.zeros(rows, *template.shape[1:], dtype=template.dtype, device=device)


def leaves(state: State) -> list[Tensor]:
    """The tensors of a state."""
    if isinstance(state, tuple):
        return [leaf for part in state for leaf in leaves(part)]
    return [] if state is None else [state]
