"""The graphs of a model under a policy: captured when first asked for, all in one memory pool."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import torch
from torch import Tensor

from offramp.engine.graphs.captured import Captured
from offramp.engine.graphs.heads import Heads, gather
from offramp.engine.graphs.layers import OTHER_PROGRAMS_FROM, Layers, Products
from offramp.engine.graphs.memory import LANES, Intake, Lane, Places, Pool, Rows, Scratch, Slot, state_buffers
from offramp.engine.graphs.sizes import ROWS, fitting, token_sizes
from offramp.engine.graphs.stages import Move, stages_of, states_of
from offramp.engine.graphs.weights import Weights, Where
from offramp.models import MultiExitModel
from offramp.policies import Policy


class Programs:
    """Memory and graphs. `layers` and `exit` run one stage on its pool; `link` runs stages on a lane, where all stay.

    Layers run on one stream and exits on another, so that exits run beside the layers of whatever is launched next.
    """

    def __init__(self, model: MultiExitModel, policy: Policy, where: Where, budget: int, record: bool) -> None:
        self.exit_layers = model.exits.layers
        self.stages = stages_of(policy, self.exit_layers, record)
        self.record = record
        self.in_one_go = record or sum(bool(stage.exits) for stage in self.stages) == 1
        """Nobody leaves on the way."""
        # The host waits for exits, whose kernels are short; in a chain it is the layers that others wait for.
        self._exit_stream, self.stream, self._fork = (torch.cuda.Stream(where.device, p) for p in (-2, -1, 0))
        self._computed = torch.cuda.Event()
        self._moved = [torch.cuda.Event() for _ in self.stages]
        """The stage's exits have been asked, and those who stay are in the next pool."""
        with torch.cuda.device(where.device), torch.cuda.stream(self.stream):
            self.stream.wait_stream(torch.cuda.default_stream(where.device))
            self.weights = Weights.of(where, model.backbone, model.exits)
            self._make_memory(policy, where, budget, len(self.weights.heads[0].classifier.weight))
            self.products = Products(where.dtype)
            self.runs = Layers(self.products, self.scratch, where.device)
            last = self.stages[-1].exits[-1]
            self.heads = Heads(self.weights.heads, model.exits.pooling_of, policy, self.exit_layers, last)
            self._graphs = Captured((self.stream, self._exit_stream))
            self._warm_up()

    def _make_memory(self, policy: Policy, where: Where, budget: int, labels: int) -> None:
        device, dtype = where.device, where.dtype
        # A pool takes a whole batch on top of those who did not yet make one.
        self.token_sizes = token_sizes(budget if self.in_one_go else budget * 3 // 2)
        tokens, rows = self.token_sizes[-1], fitting(ROWS, min(ROWS[-1], self.token_sizes[-1]))
        self.most_tokens, self.most_rows = tokens, rows
        layers = self.weights.layers
        width = layers[0].summed.weight.shape[0]
        inner = max(layer.heads * layer.head_width for layer in layers)
        widths = {"qkv": 3 * inner, "context": inner, "new": width, "middle": width}
        widths |= {f"out {stage}": width for stage in range(1 if self.in_one_go else len(self.stages))}
        widths["neurons"] = max(len(layer.neurons.weight) for layer in layers)
        if self.weights.embedding.mapping is not None:
            widths["embedded"] = self.weights.embedding.words.shape[1]
        self.width = width
        self.scratch = Scratch(tokens, widths, dtype, device)
        self._places, self._places_in_lane = (Places.empty(rows, device) for _ in range(2))
        exits = len(self.exit_layers) if self.record else 1
        self.slots = [Slot(labels, exits, rows, device) for _ in self.stages]
        states = (
            [None] * len(self.stages)
            if self.record
            else states_of(policy, self.stages, self.exit_layers, labels, dtype)
        )
        self.intake = Intake(tokens, rows, states[0], device, self.stream)
        self.pools = [
            Pool(
                self.intake.rows if index == 0 else Rows.empty(tokens, rows, device),
                torch.zeros(tokens, width, dtype=dtype, device=device),
                state_buffers(state, rows, device) if self._asked_before(index) else self.intake.state,
            )
            for index, state in enumerate(states)
        ]
        self._nowhere = Pool(Rows.empty(32, 1, device), self.pools[0].hidden[:0], None)
        """Where nobody goes from the last stage."""
        self.lanes = [Lane(self.intake.rows, self.slots[0], [pool.state for pool in self.pools])]
        for _ in range(0 if self.in_one_go else LANES - 1):
            room = [state_buffers(state, rows, device) for state in states]
            self.lanes.append(Lane(Rows.empty(tokens, rows, device), Slot(labels, 1, rows, device), room))

        hidden = [pool.hidden for pool in self.pools]
        out = [self._out(stage, tokens) for stage in range(len(self.stages))]
        self._route = [*hidden, out[-1]], [*out, hidden[-1]]
        """What each stage of a chain begins with, and what the last has made: in every other lane elsewhere."""

    def _asked_before(self, stage: int) -> bool:
        return any(earlier.exits for earlier in self.stages[:stage])

    def all_slots(self) -> list[Slot]:
        return [*self.slots, *(lane.slot for lane in self.lanes[1:])]

    def wait_for_intake(self) -> None:
        """Until nobody looks at the rows that came in last."""
        self.stream.wait_event(self._moved[0])

    def layers(self, stage: int, tokens: int) -> None:
        """Run the stage's layers on its pool; what they made waits for `exit`."""
        for earlier in range(max(0, stage - 1), stage + 1):
            self.stream.wait_event(self._moved[earlier])
        self._graphs.launch(("layers", stage, tokens), lambda: self._layers(stage, tokens, self._out(stage, tokens)))

    def exit(self, stage: int, rows: int) -> None:
        """Ask the stage's exits; those who stay go to the next pool, the others to the stage's slot."""
        self.slots[stage].expected += 1
        self._computed.record(self.stream)
        self._exit_stream.wait_event(self._computed)
        with torch.cuda.stream(self._exit_stream):
            self._graphs.launch(("exit", stage, rows), lambda: self._exit(stage, rows))
            self._moved[stage].record(self._exit_stream)

    def link(self, stages: range, asks: range, tokens: int, rows: int, lane: int = 0) -> None:
        """Some stages of a chain and, beside them, the exits of earlier ones; those of the last have a link alone."""
        self.lanes[lane].slot.expected += sum(map(self._is_told, asks))
        what = (stages, asks, tokens, rows, lane)
        self._graphs.launch(("link", *what), lambda: self._link(*what))

    def _is_told(self, stage: int) -> bool:
        """Whether the host hears of it when a stage's exits were asked; of a recording it hears the end alone."""
        return bool(self.stages[stage].exits) and (not self.record or stage + 1 == len(self.stages))

    def as_one(self) -> AbstractContextManager[None]:
        """Links and moves that are launched inside go to the device together."""
        return self._graphs.as_one()

    def gather(self, move: Move, rows: int, lane: int, to: int) -> None:
        """Whoever has not left moves to another lane, if there is room, before the exits that are asked beside a stage.

        They fit in the order of the rows: from the first who does not, all stay behind.
        """
        what = (move, rows, lane, to)
        self._graphs.launch(("gather", *what), lambda: self._gather(*what))

    def _layers(self, stage: int, tokens: int, out: Tensor) -> None:
        hidden = self.pools[stage].hidden[:tokens]
        rows = self.pools[stage].rows
        if stage == 0:
            self.runs.embed(self.weights.embedding, self.intake, hidden)
        self._run_layers(stage, hidden, rows, out)

    def _run_layers(
        self, stage: int, hidden: Tensor, rows: Rows, out: Tensor, beside: Callable[[], None] | None = None
    ) -> None:
        """With something that is done `beside` the first layer, while its input is there."""
        for index in self.stages[stage].layers:
            self.runs.layer(index + 1, self.weights.layers[index], hidden, rows, out, beside)
            hidden, beside = out, None

    def _out(self, stage: int, tokens: int) -> Tensor:
        """What a stage made, until its exits have been asked."""
        return self.scratch(f"out {0 if self.in_one_go else stage}", tokens, self.width)

    def _exit(self, stage: int, rows: int) -> None:
        after = self.pools[stage + 1] if stage + 1 < len(self.pools) else self._nowhere
        pool = self.pools[stage]
        made = self._out(stage, self.most_tokens)
        self.heads.leave(self.stages[stage], made, pool, rows, after, self.slots[stage], self._places)

    def _link(self, stages: range, asks: range, tokens: int, rows: int, lane: int) -> None:
        here = torch.cuda.current_stream()

        def ask(due: range) -> None:
            self._fork.wait_stream(here)
            with torch.cuda.stream(self._fork):
                for stage in due:
                    self._ask_in_place(stage, tokens, rows, lane)

        asked = asks.start
        for stage in stages:
            due = range(asked, max(asked, min(stage, asks.stop)))
            asked = due.stop
            if stage == 0:
                self.slots[0].exits(rows).fill_(-1)
                self._layers(0, tokens, self._reached(1, tokens, lane))
            else:
                before, after = self._reached(stage, tokens, lane), self._reached(stage + 1, tokens, lane)
                self._run_layers(stage, before, self.lanes[lane].rows, after, partial(ask, due) if due else None)
        if asked > asks.start:
            here.wait_stream(self._fork)
        for stage in range(asked, asks.stop):  # after the last stage nothing runs that they could be asked beside
            self._ask_in_place(stage, tokens, rows, lane)

    def _reached(self, stage: int, tokens: int, lane: int) -> Tensor:
        return self._route[lane % 2][stage][:tokens]

    def _ask_in_place(self, stage: int, tokens: int, rows: int, lane: int) -> None:
        if not self.stages[stage].exits:
            return
        hidden, here = self._reached(stage + 1, tokens, lane), self.lanes[lane]
        if self.record:
            self.heads.record(self.stages[stage], hidden, here.rows, rows, here.slot)
            return
        after = here.states[stage + 1] if stage + 1 < len(here.states) else None
        self.heads.leave_in_place(self.stages[stage], hidden, here.states[stage], here.rows, rows, after, here.slot)

    def _gather(self, move: Move, rows: int, lane: int, to: int) -> None:
        one, other = (
            Pool(
                self.lanes[n].rows, self._reached(move.stage, self.most_tokens, n), self.lanes[n].states[move.stage - 1]
            )
            for n in (lane, to)
        )
        gather(one, self.lanes[lane].slot, other, self.lanes[to].slot, rows, move.size, self._places_in_lane)

    def _warm_up(self) -> None:
        """Let everything run once on no rows at all: what is compiled or loaded at first use cannot be in a graph."""
        self.products.try_out(list(self.weights.products()), self.token_sizes)
        for tokens in self.token_sizes:
            self._layers(0, tokens, self._out(0, tokens))
        few_and_many = {fitting(self.token_sizes, min(tokens, self.most_tokens)) for tokens in OTHER_PROGRAMS_FROM}
        for stage in range(1, len(self.stages)):  # its layers may have other shapes
            for tokens in few_and_many:
                pool = self.pools[stage]
                self._run_layers(stage, pool.hidden[:tokens], pool.rows, self._out(stage, tokens))
        for stage in range(len(self.stages)):
            for rows in ROWS:
                if rows <= self.most_rows:
                    self._ask_in_place(stage, self.token_sizes[0], rows, 0)
                    if not self.in_one_go:
                        self._exit(stage, rows)
                        self._gather(Move(max(stage, 1), self.most_tokens), rows, 0, 1)
        for slot in self.all_slots():
            slot.ticks.zero_()
        self.wait()
        for slot in self.all_slots():
            slot.seen_ticks[0] = 0
        torch.cuda.empty_cache()

    def wait(self) -> None:
        """Until all that was launched is done. Of these streams alone: others may be in the midst of a capture."""
        for stream in (self.stream, self._exit_stream):
            stream.synchronize()
