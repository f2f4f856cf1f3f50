"""The graphs of a model under a policy: captured when first asked for, all in one memory pool."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from offramp.engine.graphs.heads import Heads
from offramp.engine.graphs.layers import Layers, Products
from offramp.engine.graphs.memory import Intake, Pool, Rows, Scratch, Slot, state_buffers
from offramp.engine.graphs.sizes import ROWS, fitting, token_sizes
from offramp.engine.graphs.stages import stages_of, states_of
from offramp.engine.graphs.weights import Weights, Where
from offramp.models import MultiExitModel
from offramp.policies import Policy


class Programs:
    """Memory and graphs. `layers` and `exit` run one stage on its pool; `link` runs a batch that stays as it is.

    Layers run on one stream and exits on another, so that exits run beside the layers of whatever is launched next.
    """

    def __init__(self, model: MultiExitModel, policy: Policy, where: Where, budget: int, record: bool) -> None:
        self.exit_layers = model.exits.layers
        self.stages = stages_of(policy, self.exit_layers, record)
        self.record = record
        self.in_one_go = record or len(self.stages) == 1
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
            self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
            streams = (self.stream, self._exit_stream)  # what runs at the same time must not share memory
            self._memory = {stream: torch.cuda.graph_pool_handle() for stream in streams}
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
        self.scratch = Scratch(tokens, rows, widths, dtype, device)
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
                self.intake.state if index == 0 else state_buffers(state, rows, device),
            )
            for index, state in enumerate(states)
        ]
        self._nowhere = Pool(Rows.empty(32, 1, device), self.pools[0].hidden[:0], None)
        """Where nobody goes from the last stage."""

    def wait_for_intake(self) -> None:
        """Until nobody looks at the rows that came in last."""
        self.stream.wait_event(self._moved[0])

    def layers(self, stage: int, tokens: int) -> None:
        """Run the stage's layers on its pool; what they made waits for `exit`."""
        for earlier in range(max(0, stage - 1), stage + 1):
            self.stream.wait_event(self._moved[earlier])
        self._replay(("layers", stage, tokens), lambda: self._layers(stage, tokens, self._out(stage, tokens)))

    def exit(self, stage: int, rows: int) -> None:
        """Ask the stage's exits; those who stay go to the next pool, the others to the stage's slot."""
        self.slots[stage].expected += 1
        self._computed.record(self.stream)
        self._exit_stream.wait_event(self._computed)
        with torch.cuda.stream(self._exit_stream):
            self._replay(("exit", stage, rows), lambda: self._exit(stage, rows))
            self._moved[stage].record(self._exit_stream)

    def link(self, first: int, end: int, tokens: int, rows: int) -> None:
        """Some stages of a chain and, beside them, the exits before them; after the last stage its own exits alone."""
        if not self.record:
            self.slots[0].expected += 1 if first == end else end - max(first, 1)
        elif first == end:
            self.slots[0].expected += 1
        self._replay(("link", first, end, tokens, rows), lambda: self._link(first, end, tokens, rows))

    def _layers(self, stage: int, tokens: int, out: Tensor) -> None:
        hidden = self.pools[stage].hidden[:tokens]
        rows = self.pools[stage].rows
        if stage == 0:
            self.runs.embed(self.weights.embedding, self.intake, hidden)
        self._run_layers(stage, hidden, rows, out)

    def _run_layers(self, stage: int, hidden: Tensor, rows: Rows, out: Tensor) -> None:
        for index in self.stages[stage].layers:
            self.runs.layer(self.weights.layers[index], hidden, rows, out)
            hidden = out

    def _out(self, stage: int, tokens: int) -> Tensor:
        """What a stage made, until its exits have been asked."""
        return self.scratch(f"out {0 if self.in_one_go else stage}", tokens, self.width)

    def _exit(self, stage: int, rows: int) -> None:
        after = self.pools[stage + 1] if stage + 1 < len(self.pools) else self._nowhere
        pool = self.pools[stage]
        self.heads.leave(
            self.stages[stage], self._out(stage, self.most_tokens), pool, pool.rows, rows, after,
            self.slots[stage], self.scratch,
        )  # fmt: skip

    def _link(self, first: int, end: int, tokens: int, rows: int) -> None:
        lie = self.intake.rows
        here = torch.cuda.current_stream()
        if first == end:
            self._ask_in_place(first - 1, tokens, rows, lie)
        for stage in range(first, end):
            if stage == 0:
                self.slots[0].exits(rows).fill_(-1)
                self._layers(0, tokens, self._after(0, tokens))
                continue
            self._fork.wait_stream(here)
            with torch.cuda.stream(self._fork):
                self._ask_in_place(stage - 1, tokens, rows, lie)
            self._run_layers(stage, self.pools[stage].hidden[:tokens], lie, self._after(stage, tokens))
        if end > max(first, 1):
            here.wait_stream(self._fork)

    def _after(self, stage: int, tokens: int) -> Tensor:
        """Where a chain puts what a stage makes."""
        last = stage + 1 == len(self.stages)
        return self._out(stage, tokens) if last else self.pools[stage + 1].hidden[:tokens]

    def _ask_in_place(self, stage: int, tokens: int, rows: int, lie: Rows) -> None:
        hidden, slot = self._after(stage, tokens), self.slots[0]
        if self.record:
            self.heads.record(self.stages[stage], hidden, lie, rows, slot)
            return
        after = self.pools[stage + 1].state if stage + 1 < len(self.pools) else None
        self.heads.leave_in_place(self.stages[stage], hidden, self.pools[stage].state, lie, rows, after, slot)

    def _replay(self, key: Hashable, build: Callable[[], None]) -> None:
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._capture(build)
        graph.replay()

    def _capture(self, build: Callable[[], None]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        memory = self._memory[torch.cuda.current_stream()]
        graph.capture_begin(pool=memory, capture_error_mode="thread_local")
        try:
            build()
        finally:
            graph.capture_end()
        return graph

    def _warm_up(self) -> None:
        """Let everything run once on no rows at all: what is compiled or loaded at first use cannot be in a graph."""
        self.products.try_out(list(self.weights.products()), self.token_sizes)
        for tokens in self.token_sizes:
            self._layers(0, tokens, self._out(0, tokens))
        for stage in range(len(self.stages)):
            for rows in ROWS:
                if rows <= self.most_rows:
                    self._ask_in_place(stage, self.token_sizes[0], rows, self.intake.rows)
                    if not self.in_one_go:
                        self._exit(stage, rows)
        for slot in self.slots:
            slot.ticks.zero_()
        self.stream.synchronize()
        for slot in self.slots:
            slot.seen_ticks[0] = 0
        torch.cuda.empty_cache()
