"""Rows on a GPU: CUDA graphs over packed rows, exits and compaction on the device.

sizes      the sizes graphs are captured for
weights    a model's weights as the graphs use them
memory     what graphs read and write
kernels, linear, exit_kernels   Triton
layers     a layer's kernels in their order
heads      an exit's kernels, the policy's step, who moves where
stages     which layers run between which exits
programs   the graphs
chains     few rows, which stay together
runner     which graph runs when
support    what cannot run here, and why
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offramp.engine.graphs.support import why_not

if TYPE_CHECKING:
    from offramp.engine.graphs.runner import GraphRunner

__all__ = ["GraphRunner", "why_not"]


def __getattr__(name: str) -> Any:
    """The runner is imported when it is first asked for: it needs Triton."""
    if name == "GraphRunner":
        from offramp.engine.graphs.runner import GraphRunner

        return GraphRunner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
