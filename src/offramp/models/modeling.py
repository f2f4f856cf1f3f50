"""The multi-exit model, on Hugging Face conventions: `from_pretrained`, `save_pretrained`, Auto classes, pipelines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils.generic import ModelOutput

from offramp.backbones import Backbone, from_config
from offramp.errors import OfframpError
from offramp.models.batch import check_batch, refuse_unknown_inputs
from offramp.models.config import MultiExitConfig
from offramp.models.early_exit import Answer, answer
from offramp.models.exits import Exits
from offramp.models.folding import shrink
from offramp.models.gate_settings import GateSettings
from offramp.models.gated_layer import gated_layer
from offramp.models.gates import Gates, Kept, gates_see_padding
from offramp.models.loading import checked_from_pretrained
from offramp.models.modes import answering
from offramp.models.objectives import Classification, Objective, Regression, Span
from offramp.models.skipping import Skipping
from offramp.policies import Policy
from offramp.whole_folder import let_weights_be_read

Branch = Callable[[Tensor, int, int], tuple[Tensor, Tensor]]
"""(layer output, exits at or above it, exits above it) to (what its exit gets, what the next layer gets)."""


@dataclass
class MultiExitOutput(ModelOutput):
    """What a full pass gives: `logits` of the last exit, `exit_logits` of every exit, first to last."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    exit_logits: tuple[Tensor, ...] | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    gates: tuple[tuple[Tensor, Tensor], ...] | None = None
    """What each layer kept of heads (B, heads) and neurons (B, neurons / block)."""


@dataclass
class MultiExitSpanOutput(ModelOutput):
    """The same for spans, after the last exit's logits split as question-answering code expects them."""

    loss: Tensor | None = None
    start_logits: Tensor | None = None
    end_logits: Tensor | None = None
    logits: Tensor | None = None
    exit_logits: tuple[Tensor, ...] | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    gates: tuple[tuple[Tensor, Tensor], ...] | None = None


class Pass(NamedTuple):
    """What one pass over a batch gives."""

    logits: tuple[Tensor, ...]
    """Of the wanted exits, first to last."""
    states: tuple[Tensor, ...]
    """The embeddings, and every computed layer's output."""
    gates: tuple[Kept, ...] | None
    """What was kept in every computed layer; None where there are no gates, or all are open."""


class MultiExitPreTrainedModel(PreTrainedModel):
    """A backbone held under the name `backbone`, with or without gates in its layers."""

    config_class = MultiExitConfig
    base_model_prefix = "backbone"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = False  # our losses are means: a Trainer that accumulates has to divide by the number of steps
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    backbone: Backbone
    gates: Gates | None
    skipping: Skipping | None = None
    """Runs gated layers by what is kept only, where it is set."""

    def __init__(self, config: MultiExitConfig) -> None:
        super().__init__(config)
        self.backbone = from_config(config.backbone_config)
        self.gates = None
        if config.gate_settings is not None:
            shrink(self.backbone, config.gate_settings)
            self.gates = Gates(self.backbone, config.gate_settings)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        return checked_from_pretrained(super().from_pretrained, pretrained_model_name_or_path, *args, **kwargs)

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        super().save_pretrained(save_directory, *args, **kwargs)
        let_weights_be_read(Path(save_directory))

    def layer(self, index: int, hidden: Tensor, mask: Any, attention_mask: Tensor) -> tuple[Tensor, Kept | None]:
        """Run layer `index` (0-based), with its gates where there are any and they are not held open."""
        if self.gates is None or self.gates.are_open:
            return self.backbone.layer(index, hidden, mask), None
        if self.skipping is not None and self.may_skip(hidden):
            return self.skipping.layer(index, hidden, mask, attention_mask)
        parts = self.backbone.parts(index)
        return gated_layer(parts, self.gates, index, hidden, mask, attention_mask, self.training)

    def may_skip(self, hidden: Tensor) -> bool:
        """Skipping knows neither gradients nor autocast."""
        return not (self.training or torch.is_grad_enabled() or torch.is_autocast_enabled(hidden.device.type))

    def add_gates(self, settings: GateSettings) -> None:
        """Give every layer gates with fresh weights."""
        like = next(self.backbone.parameters())
        gates = Gates(self.backbone, settings)
        gates.draw(self.config.initializer_range)
        self.gates = gates.to(device=like.device, dtype=like.dtype).train(self.training)
        self.config.gates = settings.to_json()
        self.skipping = None

    @torch.no_grad()
    def pad_gates_to(self, length: int) -> None:
        """Answer from now on as if every row were padded to so many tokens, as EBERT's program pads them.

        Its first gates look at the padding, too. Nothing is computed for it: what it adds to their input is known.
        """
        if not gates_see_padding(self.gates):
            raise OfframpError("the model has no gates that look at padding: how far rows are padded changes nothing")
        ids = torch.full((1, length), int(self.backbone.config.pad_token_id or 0), device=self.device)
        embedded = self.backbone.embed(ids)[0]  # (T, d)
        after = embedded.flip(0).cumsum(0).flip(0)
        self.gates.padding = torch.cat([after, torch.zeros_like(after[:1])])  # type: ignore[union-attr]

    def set_gate_threshold(self, threshold: float) -> None:
        """Keep heads and neurons whose gates' logits are at least this."""
        if self.gates is None:
            raise OfframpError("the model has no gates: there is no threshold to set")
        settings = replace(self.gates.settings, threshold=threshold)
        self.gates.change(settings)
        self.config.gates = settings.to_json()

    def get_input_embeddings(self) -> nn.Module:
        module: nn.Module = self.backbone.model.get_input_embeddings()
        return module

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.backbone.model.set_input_embeddings(value)


class MultiExitEncoder(MultiExitPreTrainedModel):
    """The backbone alone (`AutoModel`): every layer's hidden states, no exits."""

    _keys_to_ignore_on_load_unexpected = [r"^exits\.", r"^loss_weights$"]

    def __init__(self, config: MultiExitConfig) -> None:
        super().__init__(config)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        refuse_unknown_inputs(kwargs)
        attention_mask = check_batch(self.backbone, input_ids, attention_mask, token_type_ids)
        hidden = self.backbone.embed(input_ids, token_type_ids)
        mask = self.backbone.mask(attention_mask, hidden)
        states = [hidden]
        for index in range(self.backbone.depth):
            states.append(self.layer(index, states[-1], mask, attention_mask)[0])
        return BaseModelOutput(last_hidden_state=states[-1], hidden_states=tuple(states))  # type: ignore[arg-type]


class MultiExitModel(MultiExitPreTrainedModel):
    """A backbone and its exits. What the exits are asked is in `objective`; subclasses fix it."""

    objective: Objective
    outputs: int
    stored_policy: Policy | None = None
    """The policy that a checkpoint of an original program brings; nothing is certified of it."""

    def __init__(self, config: MultiExitConfig) -> None:
        super().__init__(config)
        self.exits = Exits(config, self.outputs, each_token=isinstance(self.objective, Span))
        if config.learned_loss_weights:
            self.loss_weights = nn.Parameter(torch.empty(config.num_exits - 1))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if module is self and self.config.learned_loss_weights:
            torch.nn.init.constant_(self.loss_weights, 4.0)

    def run(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        exits: Sequence[int] | None = None,
        branch: Branch | None = None,
    ) -> Pass:
        """One pass, with the logits of the wanted exits (0-based; default all).

        No layer above the last wanted exit is computed. `branch` lets a recipe shape the gradient where an exit
        leaves the trunk.
        """
        attention_mask = check_batch(self.backbone, input_ids, attention_mask, token_type_ids)
        wanted = range(len(self.exits)) if exits is None else sorted(exits)
        if not wanted or wanted[0] < 0 or wanted[-1] >= len(self.exits):
            raise OfframpError(f"exits={list(wanted)}: name some of the exits, 0 to {len(self.exits) - 1}")
        layers = [self.exits.layers[exit] for exit in wanted]  # 1-based, ascending
        hidden = self.backbone.embed(input_ids, token_type_ids)
        mask = self.backbone.mask(attention_mask, hidden)
        logits, states, gates = [], [hidden], []
        for layer in range(1, layers[-1] + 1):
            hidden, kept = self.layer(layer - 1, hidden, mask, attention_mask)
            to_exit = hidden
            states.append(hidden)
            if kept is not None:
                gates.append(kept)
            if branch is not None:
                to_exit, hidden = branch(hidden, sum(at >= layer for at in layers), sum(at > layer for at in layers))
            logits += [
                self.exits(exit, to_exit, attention_mask)
                for exit, at in zip(wanted, layers, strict=True)
                if at == layer
            ]
        return Pass(tuple(logits), tuple(states), tuple(gates) or None)

    def mark_trained(self, exits: Iterable[int]) -> None:
        """Note that these exits (0-based) have been trained."""
        trained = set(exits)
        self.config.untrained_exits = [exit for exit in self.config.untrained_exits if exit not in trained]

    def joint_loss(self, exit_logits: Sequence[Tensor], target: Tensor) -> Tensor:
        """Σ of the exits' losses: what training without a recipe would minimise."""
        return torch.stack([self.objective.loss(logits, target) for logits in exit_logits]).sum()

    def answer(
        self,
        policy: Policy,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        samples: Tensor | None = None,
    ) -> Answer:
        """Answer a batch under a policy: each row leaves at its own layer, and no later layer is computed for it."""
        with answering(self):
            return answer(self, policy, input_ids, attention_mask, token_type_ids, samples)

    def asked(self, setting: str, here: bool | None) -> bool:
        """An option as given in this call or, where it was not, in the configuration."""
        return bool(getattr(self.config, setting) if here is None else here)

    @staticmethod
    def target(batch: dict[str, Tensor]) -> Tensor | None:
        """Take the labels out of a batch, in the form the objective wants."""
        return batch.pop("labels", None)


class MultiExitForSequenceClassification(MultiExitModel):
    """One label, or with `num_labels == 1` one number, for each text or pair of texts."""

    def __init__(self, config: MultiExitConfig) -> None:
        self.outputs = int(config.num_labels or 0)
        self.objective = Regression() if config.num_labels == 1 else Classification()
        super().__init__(config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        exits: Sequence[int] | None = None,
        branch: Branch | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> MultiExitOutput | tuple[Any, ...]:
        refuse_unknown_inputs(kwargs)
        logits, states, gates = self.run(input_ids, attention_mask, token_type_ids, exits=exits, branch=branch)
        output = MultiExitOutput(
            loss=None if labels is None else self.joint_loss(logits, labels),
            logits=logits[-1],
            exit_logits=logits,
            hidden_states=states if self.asked("output_hidden_states", output_hidden_states) else None,
            gates=None if gates is None else tuple((kept.heads, kept.neurons) for kept in gates),
        )
        return output if self.asked("return_dict", return_dict) else output.to_tuple()


class MultiExitForQuestionAnswering(MultiExitModel):
    """Where in a text the answer to a question starts and ends."""

    objective = Span()
    outputs = 2

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        exits: Sequence[int] | None = None,
        branch: Branch | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> MultiExitSpanOutput | tuple[Any, ...]:
        refuse_unknown_inputs(kwargs)
        logits, states, gates = self.run(input_ids, attention_mask, token_type_ids, exits=exits, branch=branch)
        target = self.target({"start_positions": start_positions, "end_positions": end_positions})
        start, end = logits[-1].unbind(-1)
        output = MultiExitSpanOutput(
            loss=None if target is None else self.joint_loss(logits, target),
            logits=logits[-1],
            exit_logits=logits,
            hidden_states=states if self.asked("output_hidden_states", output_hidden_states) else None,
            gates=None if gates is None else tuple((kept.heads, kept.neurons) for kept in gates),
            start_logits=start,
            end_logits=end,
        )
        return output if self.asked("return_dict", return_dict) else output.to_tuple()

    @staticmethod
    def target(batch: dict[str, Any]) -> Tensor | None:
        start, end = batch.pop("start_positions", None), batch.pop("end_positions", None)
        if (start is None) != (end is None):
            raise OfframpError("a span needs both start_positions and end_positions")
        return None if start is None else torch.stack([start, end], -1)  # (B, 2)


AutoModel.register(MultiExitConfig, MultiExitEncoder, exist_ok=True)
AutoModelForSequenceClassification.register(MultiExitConfig, MultiExitForSequenceClassification, exist_ok=True)
AutoModelForQuestionAnswering.register(MultiExitConfig, MultiExitForQuestionAnswering, exist_ok=True)
