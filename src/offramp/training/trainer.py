"""A Hugging Face Trainer that runs one phase of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from accelerate.utils import AutocastKwargs
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from offramp.models import MultiExitModel
from offramp.tasks.encoding import Row, TextEncoder
from offramp.tasks.squad import WindowEncoder
from offramp.training.batches import Collate, EncodedRows, GroupedBatches
from offramp.training.graphed_phase import GraphedPhase, padded_length
from offramp.training.loop import learning_rate_shapes, parameter_groups
from offramp.training.lowered import lower_for_good
from offramp.training.material import Label, exit_names
from offramp.training.phase_gradients import PhaseGradients

ExitScores = Callable[[], Sequence[float]]
"""The dev score of every exit, first to last."""


class PhaseTrainer(Trainer):
    """Steps, schedules, checkpoints, resuming and reporting are the Trainer's; batches and gradients are ours.

    The gradient of a step comes from `PhaseGradients`, which may hold two sums that must not be mixed before the
    recipe has edited them. So the model is not wrapped for data-parallel training: each process adds up its own
    micro-batches, and the sums are added over the processes once a step.
    """

    def __init__(
        self,
        model: MultiExitModel,
        gradients: PhaseGradients,
        arguments: TrainingArguments,
        rows: Sequence[Row],
        labels: Sequence[Label],
        encoder: TextEncoder | WindowEncoder,
        exit_scores: ExitScores | None,
        callbacks: list[TrainerCallback],
    ) -> None:
        self.gradients = gradients
        self.phase = gradients.phase
        self.exit_scores = exit_scores
        arguments._setup_devices  # noqa: B018  (finds the devices; must come before the next line)
        arguments._n_gpu = min(arguments.n_gpu, 1)  # one process, one GPU: more of them are torchrun's business
        dataset = EncodedRows(rows, labels, model.objective.name)
        looked_at = dataset if exit_scores else None  # it asks for one, and `evaluate` below reads the dev rows itself
        super().__init__(
            model=model, args=arguments, train_dataset=dataset, eval_dataset=looked_at, callbacks=callbacks
        )
        if gradients.teacher is not None:
            nn.Module.to(gradients.teacher, arguments.device)  # a copy of a model that may not have been there yet
            if arguments.bf16:
                lower_for_good(gradients.teacher, torch.bfloat16)
        self.graphs = GraphedPhase(gradients, arguments.device, self.autocast_in_graphs)
        self.graphs.works &= self.accelerator.scaler is None  # scaled losses would be captured with their scale
        most = encoder.max_length
        length = (lambda longest: padded_length(longest, most)) if self.graphs.works else (lambda longest: longest)
        self.collate = Collate(dataset, encoder, length)
        self.rows_in_full_step = min(self.phase.schedule.batch_size, len(rows))
        self.parameters_of_layers = model.num_parameters(exclude_embeddings=True)
        for theirs in (ProgressCallback, PrinterCallback):
            self.remove_callback(theirs)
        self.batches = GroupedBatches(
            [len(row) for row in rows],
            self.phase.schedule.batch_size,
            accumulate=arguments.gradient_accumulation_steps,
            process=arguments.process_index,
            processes=arguments.world_size,
            seed=arguments.seed,
        )
        self.add_callback(SetEpoch(self.batches))

    def get_train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(
            self.train_dataset,  # type: ignore[arg-type]
            batch_sampler=self.batches,
            collate_fn=self.collate,
            pin_memory=self.args.device.type == "cuda",
        )

    def _wrap_model(self, model: nn.Module, training: bool = True, dataloader: Any = None) -> nn.Module:
        return Unsynchronised(model)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        groups = parameter_groups(self.gradients.trained, self.phase)
        fused = self.args.device.type == "cuda"
        self.optimizer = torch.optim.AdamW(groups, fused=fused)
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        assert self.optimizer is not None
        shapes = learning_rate_shapes(self.phase, len(self.optimizer.param_groups), num_training_steps)
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, shapes)
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def _get_num_items_in_batch(self, batch_samples: list[Mapping[str, Tensor]], device: torch.device) -> Any:
        """Rows of the step over all processes, so that each counts the same wherever it is computed."""
        rows = sum(len(batch["input_ids"]) for batch in batch_samples)
        if self.args.world_size == 1:
            return rows
        return int(self.accelerator.reduce(torch.tensor(rows, device=device), "sum"))

    def train(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().train(*args, **kwargs)
        finally:
            self.graphs.forget()

    def autocast_in_graphs(self) -> AbstractContextManager[None]:
        """A weight cast before a capture would not be cast again in a replay."""
        context: AbstractContextManager[None] = self.accelerator.autocast(AutocastKwargs(cache_enabled=False))
        return context

    def floating_point_ops(self, inputs: Any) -> int:
        """What the model would say, without counting its parameters at every step."""
        return 6 * int(inputs["input_ids"].numel()) * self.parameters_of_layers

    def _prepare_inputs(self, inputs: Any) -> dict[str, Tensor]:
        """On their way to the device while the last step still runs there."""
        device = self.args.device
        return {name: values.to(device, non_blocking=device.type == "cuda") for name, values in inputs.items()}

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        share = len(inputs["input_ids"]) / num_items_in_batch
        if not self.gradients.model.training:
            self.gradients.model.train()
        if not share:
            return torch.zeros((), device=self.args.device)
        # Logged losses are means over the processes, ours is a share of the whole step's.
        loss: Tensor = self._add(inputs, share, num_items_in_batch) * self.args.world_size
        return loss

    def _add(self, inputs: Mapping[str, Tensor], share: float, rows_in_step: int) -> Tensor:
        """Add a micro-batch's gradient; its loss, times its share."""
        if self.graphs.works and rows_in_step == self.rows_in_full_step:  # the last step of an epoch has other shapes
            loss = self.graphs.add(inputs, share)
            if loss is not None:
                return loss
        inputs = self._prepare_inputs(inputs)
        with self.accelerator.autocast():
            losses = self.gradients.losses(inputs, share)
        scaler = self.accelerator.scaler
        self.gradients.add_gradients([scaler.scale(loss) for loss in losses] if scaler is not None else losses)
        return torch.stack(losses).detach().sum()

    def _clip_grad_norm(self, model: nn.Module) -> Tensor:
        """Called once a step, when all micro-batches are in."""
        if self.args.world_size > 1:
            self.gradients.sum_over_processes()
        self.gradients.edit()
        self.accelerator.unscale_gradients()
        return self.gradients.clip()

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """The dev score of every exit; `eval_score` is the mean over the exits this phase trains."""
        assert self.exit_scores is not None
        scores = self.exit_scores()
        trained = self.phase.exit_numbers(self.gradients.model)
        names = exit_names(self.gradients.model.exits.layers)
        metrics = {f"eval_exit_{name}": score for name, score in zip(names, scores, strict=True)}
        metrics["eval_score"] = sum(scores[exit] for exit in trained) / len(trained)
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


class Unsynchronised(nn.Module):
    """What the Trainer takes for a wrapped model, and therefore does not wrap again."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


class SetEpoch(TrainerCallback):
    """Tells the batches which epoch it is, also when training goes on in the middle of one."""

    def __init__(self, batches: GroupedBatches) -> None:
        self.batches = batches

    def on_epoch_begin(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        self.batches.epoch = state.global_step // self.batches.steps
