"""Parts of files on the machines of a Ray cluster, through Ray Data.

Readers turn files into parts, a pool of workers with a model each answers and writes them, and only receipts come back.
A worker that is lost is started again, and so is the part it was at: Ray does both.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from offramp.errors import OfframpError, needs, one_line
from offramp.prediction.folder_run import Missing
from offramp.prediction.parts import Answerer, Job, Receipt, Unreadable, read_parts
from offramp.ray_cluster import cluster, worker_share


def answer_on_ray(job: Job, missing: Missing, workers: int | None = None) -> Iterator[Receipt | Unreadable]:
    """On a Ray cluster: the one at RAY_ADDRESS, one that runs on this machine, or one for this run alone.

    Every machine needs offramp, and must see the model, the input and the output under the same paths.
    """
    with cluster() as ray:
        data = needs("ray.data", "ray")
        share = worker_share(ray, job.options.get("device", "auto"), job.options.get("threads"), workers)
        job = replace(job, options={**job.options, "threads": share.threads})
        _be_quiet(data)
        given = data.from_items(
            [{"source": pickle.dumps(one)} for one in missing], override_num_blocks=max(1, len(missing))
        )
        given.context.target_max_block_size = 1  # a block is a part: blocks are what workers are handed
        parts = given.flat_map(
            _read,
            fn_kwargs={"job": job},
            compute=data.TaskPoolStrategy(min(len(missing), share.workers)),
            num_cpus=0,  # or workers that take every CPU would wait for readers that find none
        )
        receipts = parts.map(
            _Worker,
            fn_constructor_args=(job,),
            compute=data.ActorPoolStrategy(size=share.workers),
            num_cpus=share.threads,
            num_gpus=share.gpus,
        )
        try:
            for row in receipts.iter_rows():
                found = pickle.loads(row["receipt"])
                if isinstance(found, OfframpError):
                    raise found
                yield found
        except ray.exceptions.RayError as error:
            raise OfframpError(f"Ray gave up ({one_line(error)}): the same command goes on from there") from error


def _read(row: dict[str, Any], job: Job) -> Iterator[dict[str, Any]]:
    """A file to its parts. They travel pickled: what a cell may hold is ours to know, and not Arrow's."""
    source, done = pickle.loads(row["source"])
    for part in read_parts(job, source, done):
        yield {"part": pickle.dumps(part)}


class _Worker:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.answer: Answerer | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """What the user can mend comes back as a value: Ray would wrap an exception in pages of its own."""
        part = pickle.loads(row["part"])
        try:
            if not isinstance(part, Unreadable):
                self.answer = self.answer or Answerer(self.job)
                part = self.answer(part)
        except OfframpError as error:
            part = error
        return {"receipt": pickle.dumps(part)}


def _be_quiet(data: Any) -> None:
    """Progress is told by whoever takes the receipts."""
    data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
