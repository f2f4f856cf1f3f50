"""The AdamW rule of the libraries the originals were pinned to; only for parity with their training runs."""

from __future__ import annotations

import math
from typing import Any

import torch


class LegacyAdamW(torch.optim.Optimizer):
    """eps is added to sqrt(v) before the bias correction, and weight decay is applied after the update."""

    def __init__(self, params: list[dict[str, Any]]) -> None:
        super().__init__(params, {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                state["step"] = t = state.get("step", 0) + 1
                m = state.setdefault("m", torch.zeros_like(parameter))
                v = state.setdefault("v", torch.zeros_like(parameter))
                m.mul_(beta1).add_(parameter.grad, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
                rate = group["lr"] * math.sqrt(1 - beta2**t) / (1 - beta1**t)
                parameter.addcdiv_(m, v.sqrt().add_(group["eps"]), value=-rate)
                if group["weight_decay"]:
                    parameter.add_(parameter, alpha=-group["lr"] * group["weight_decay"])
