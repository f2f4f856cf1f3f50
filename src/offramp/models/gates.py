"""EBERT's gates (Liu et al., ACL Findings 2021): small predictors that switch heads and neurons off for one input.

    logits = Linear(64, units)(ReLU(BatchNorm(Linear(d, 64)(x))))

In training, with u ~ U(0, 1):

    g = ln(u + 1e-8) − ln(1 − u + 1e-8),  soft = σ((logit + g) / τ),  gate = 1[soft ≥ ½]

and the gradient is soft's (straight-through). At inference gate = 1[logit ≥ 0].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from offramp.backbones import Backbone
from offramp.errors import OfframpError
from offramp.models.gate_settings import FoldedLayer, GateSettings
from offramp.models.pooling import first_real_token, mean_over

Mode = Literal["sample", "decide", "open"]
"""In training: noisy gates; gates as at inference; or every gate open, also at inference."""

PREDICTED, ALWAYS_ON, ALWAYS_OFF = 0, 1, -1
"""States of a gate."""

NEVER_ZERO = 1e-8


class Kept(NamedTuple):
    """The gates of one layer for each row: 1 keeps, 0 skips; in training they carry gradients."""

    heads: Tensor  # (B, heads)
    neurons: Tensor  # (B, neurons / block)


class PredictorNorm(nn.BatchNorm1d):
    """Batch normalisation that takes a training batch of one row by its running statistics, instead of failing."""

    def forward(self, input: Tensor) -> Tensor:
        if self.training and len(input) == 1:
            return nn.functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
            )
        return super().forward(input)


class UnitGates(nn.Module):
    """Gates over the heads, or the (blocks of) neurons, of one layer."""

    state: Tensor

    def __init__(self, hidden: int, units: int, predicted: int, mode: str, settings: GateSettings, eps: float) -> None:
        super().__init__()
        self.mode = mode
        self.sparsity = settings.sparsity
        self.temperature = settings.temperature
        self.threshold = settings.threshold
        self.uniform: Callable[[Tensor], Tensor] = torch.rand_like
        """Where the noise comes from."""
        self.register_buffer("state", torch.zeros(units, dtype=torch.int8))
        self.predictor = (
            nn.Sequential(
                nn.Linear(hidden, settings.width),
                PredictorNorm(settings.width, eps=eps),
                nn.ReLU(),
                nn.Linear(settings.width, predicted),
            )
            if predicted
            else None
        )

    def logits(self, seen: Tensor) -> Tensor:
        """Of the gates that are predicted: (B, d) to (B, predicted), in at least float32."""
        assert self.predictor is not None
        logits: Tensor = self.predictor(seen)
        return logits if logits.dtype == torch.float64 else logits.float()

    def forward(self, seen: Tensor) -> Tensor:
        """All gates, (B, d) to (B, units)."""
        if self.predictor is None:
            return (self.state > 0).to(seen.dtype).expand(len(seen), -1)
        gates = self.by_rank(self.logits(seen)) if self.mode == "topk" else self.by_sign(self.logits(seen))
        gates = gates.to(seen.dtype)
        if gates.shape[1] == len(self.state):
            return gates
        every = (self.state > 0).to(seen.dtype).repeat(len(seen), 1)
        every[:, self.state == PREDICTED] = gates
        return every

    def by_sign(self, logits: Tensor) -> Tensor:
        if not self.training:
            return (logits >= self.threshold).to(logits.dtype)
        u = self.uniform(logits).to(logits.dtype)
        noise = (u + NEVER_ZERO).log() - (1 - u + NEVER_ZERO).log()
        soft = ((logits + noise) / self.temperature).sigmoid()
        return (soft >= 0.5).to(logits.dtype) + soft - soft.detach()

    def by_rank(self, logits: Tensor) -> Tensor:
        """Drop the k smallest, and what equals the k-th; the gradient goes to the logits as it is."""
        smallest = int(self.sparsity * logits.shape[1])
        keep = torch.ones_like(logits)
        if smallest:
            threshold = logits.detach().kthvalue(smallest, dim=1, keepdim=True).values
            keep = (logits > threshold).to(logits.dtype)
        return keep + logits - logits.detach() if self.training else keep


class LayerGates(nn.Module):
    """The gates of one layer."""

    def __init__(self, backbone: Backbone, settings: GateSettings, folded: FoldedLayer | None) -> None:
        super().__init__()
        config = backbone.config
        heads, neurons = config.num_attention_heads, config.intermediate_size
        left = folded or FoldedLayer(heads, neurons, heads, neurons // settings.block)
        hidden, eps = backbone.hidden_size, config.layer_norm_eps
        blocks = left.neurons // settings.block
        self.heads = UnitGates(hidden, left.heads, left.predicted_heads, settings.heads, settings, eps)
        self.neurons = UnitGates(hidden, blocks, left.predicted_neurons, settings.neurons, settings, eps)


class Gates(nn.Module):
    """The gates of a model."""

    padding: Tensor | None
    """Of a model whose first gates see padding: (T + 1, d), where rows are to be answered as if all were padded
    to T tokens. Row i is the sum of what padding is embedded as from place i on."""

    def __init__(self, backbone: Backbone, settings: GateSettings) -> None:
        super().__init__()
        settings.check(backbone.config.intermediate_size)
        refuse_other_activations(backbone)
        self.settings = settings
        folded = settings.folded or (None,) * backbone.depth
        self.layers = nn.ModuleList(LayerGates(backbone, settings, layer) for layer in folded)
        self.mode: Mode = "sample"
        self.in_training = True
        self.register_buffer("padding", None, persistent=False)

    def layer(self, index: int) -> LayerGates:
        """The gates of one layer (0-based)."""
        layer: LayerGates = self.layers[index]  # type: ignore[assignment]
        return layer

    @property
    def block(self) -> int:
        return self.settings.block

    @property
    def are_open(self) -> bool:
        return self.mode == "open"

    def change(self, settings: GateSettings) -> None:
        """Decide otherwise, with the same predictors."""
        self.settings = settings
        for each in self.layers:
            layer: LayerGates = each  # type: ignore[assignment]
            for units, mode in ((layer.heads, settings.heads), (layer.neurons, settings.neurons)):
                units.mode, units.sparsity, units.temperature = mode, settings.sparsity, settings.temperature
                units.threshold = settings.threshold

    def set_mode(self, mode: Mode) -> None:
        """How gates decide from now on."""
        self.mode = mode
        self.train(self.in_training)

    def train(self, mode: bool = True) -> Gates:
        """Noise and batch statistics belong to training with `sample` alone; the model may train without."""
        self.in_training = mode
        super().train(mode and self.mode == "sample")
        return self

    def head_input(self, layer: int, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """What the head gates of a layer (0-based) see of its input: (B, T, d) to (B, d)."""
        if layer:
            return first_real_token(hidden, attention_mask)
        if self.padding is not None:
            lengths, longest = attention_mask.sum(1), len(self.padding) - 1
            real = (hidden * attention_mask.unsqueeze(-1)).sum(1)
            return (real + self.padding[lengths.clamp(max=longest)]) / lengths.clamp(min=longest).unsqueeze(1)
        if self.settings.first_input == "padded_mean":
            return hidden.mean(1)
        return mean_over(hidden, attention_mask)

    def draw(self, spread: float) -> None:
        """Fresh weights, drawn as in BERT: every gate is as likely on as off."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=spread)
                nn.init.zeros_(module.bias)


def refuse_other_activations(backbone: Backbone) -> None:
    """A neuron that is switched off gives f(0), which has to be nothing."""
    zero = backbone.parts(0).activation(torch.zeros(1, device="cpu"))  # not on meta, where loading builds models
    if bool(zero != 0):
        raise OfframpError(
            f"gates need an activation with f(0) = 0, such as gelu or relu: this backbone has "
            f"{backbone.config.hidden_act}"
        )


def gates_see_padding(gates: Gates | None) -> bool:
    """Whether the first of them look at padding, too, as EBERT's own do: a row then depends on how far it is padded."""
    return gates is not None and gates.settings.first_input == "padded_mean" and gates.padding is None
