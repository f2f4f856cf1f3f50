"""The pieces a layer is made of, under one set of names for all families."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class LayerParts:
    """Attention, then a feed-forward block, each added to its input and normalised.

        a = attended_norm(h + dropout(attended(attention(query(h), key(h), value(h)))))
        h' = summed_norm(a + dropout(summed(activation(neurons(a)))))

    A layer may have fewer heads and neurons than its configuration says: the shapes of the weights decide.
    """

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    attended: nn.Linear
    attended_norm: nn.LayerNorm
    neurons: nn.Linear
    activation: Callable[[Tensor], Tensor]
    summed: nn.Linear
    summed_norm: nn.LayerNorm
    head_width: int
    attention_dropout: float
    hidden_dropout: float
    summed_dropout: float
    """ALBERT has no dropout here."""

    @property
    def heads(self) -> int:
        return self.query.out_features // self.head_width

    def after_attention(self, hidden: Tensor, gathered: Tensor, training: bool) -> Tensor:
        """The first block's output, from what `attended` made of the attention."""
        norm: Tensor = self.attended_norm(hidden + F.dropout(gathered, self.hidden_dropout, training))
        return norm

    def after_neurons(self, hidden: Tensor, summed: Tensor, training: bool) -> Tensor:
        """The layer's output, from what `summed` made of the neurons."""
        norm: Tensor = self.summed_norm(hidden + F.dropout(summed, self.summed_dropout, training))
        return norm
