"""Policies as people type them: `entropy(0.1, normalised=True) | window(8)`."""

from __future__ import annotations

import ast
import dataclasses
import logging
from collections import Counter
from typing import Any

from offramp.errors import OfframpError
from offramp.policies.base import REGISTRY, Policy
from offramp.policies.combined import Both, Combined, Either
from offramp.policies.threshold import Threshold

log = logging.getLogger("offramp")

EXAMPLE = "entropy(0.1) | window(8)"
LONGEST = 4000
"""Letters: enough for a number for each of a hundred layers, twice."""


def policy_to_text(policy: Policy) -> str:
    """The shortest text that `policy_from_text` reads back as an equal policy."""
    if isinstance(policy, Combined):
        return f" {policy.sign} ".join(f"({part})" if isinstance(part, Combined) else str(part) for part in policy.of)
    first, *others = dataclasses.fields(policy)
    settings = [_written(getattr(policy, first.name))]
    settings += [
        f"{field.name}={_written(getattr(policy, field.name))}"
        for field in others
        if getattr(policy, field.name) != field.default
    ]
    return f"{policy.name}({', '.join(settings)})"


def policy_from_text(text: str) -> Policy:
    """Read a policy: names with their numbers, joined by | (either says so) and & (both do), with parentheses."""
    if len(text) > LONGEST:
        raise OfframpError(f"a policy of {len(text)} letters: expected one like {EXAMPLE!r}, {LONGEST} letters at most")
    try:
        policy = _read(ast.parse(text.strip(), mode="eval").body, text)
        warn_where_nobody_leaves(policy)
        return policy
    except OfframpError:
        raise
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:  # the last two: parentheses in parentheses
        raise OfframpError(f"cannot read the policy {text!r}: write it like {EXAMPLE!r}") from error


def warn_where_nobody_leaves(policy: Policy) -> None:
    """Of a number that was meant otherwise: a percentage, or one below nothing."""
    for part in policy.of if isinstance(policy, Combined) else (policy,):
        if isinstance(part, Combined):
            warn_where_nobody_leaves(part)
        elif isinstance(part, Threshold):
            numbers = part.threshold if isinstance(part.threshold, tuple) else (part.threshold,)
            if part.above and min(numbers) > 1:
                log.warning("%s: nobody leaves early by it; a probability is at most 1, as in %s(0.9)", part, part.name)
            elif not part.above and max(numbers) < 0:
                log.warning("%s: nobody leaves early by it; %s is never below 0", part, part.name)


def _written(value: Any) -> str:
    return repr(list(value)) if isinstance(value, tuple) else repr(value)


def _read(node: ast.expr, text: str) -> Policy:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd):
        parts = (_read(node.left, text), _read(node.right, text))
        return Either(parts) if isinstance(node.op, ast.BitOr) else Both(parts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _read_rule(node.func.id, node, text)
    raise OfframpError(f"cannot read the policy {text!r}: write it like {EXAMPLE!r}")


def _value(node: ast.expr) -> Any:
    """A number, a list, true or false, or a word, which a shell would rather have without quotes."""
    if isinstance(node, ast.Name):
        return {"true": True, "false": False}.get(node.id, node.id)
    return ast.literal_eval(node)


def _read_rule(name: str, call: ast.Call, text: str) -> Policy:
    rules = {known: rule for known, rule in REGISTRY.items() if not issubclass(rule, Combined)}
    if name not in rules:
        raise OfframpError(f"unknown policy {name!r} in {text!r}: use one of {', '.join(sorted(rules))}")
    try:
        numbers = [_value(argument) for argument in call.args]
        settings = {str(keyword.arg): _value(keyword.value) for keyword in call.keywords}
    except (ValueError, TypeError) as error:  # TypeError: what cannot be a key, in braces
        raise OfframpError(f"{name} in {text!r} takes plain numbers and words only") from error
    if twice := [each for each, times in Counter(keyword.arg for keyword in call.keywords).items() if times > 1]:
        raise OfframpError(f"{name} in {text!r} has {twice[0]} twice")
    try:
        return rules[name](*numbers, **settings)
    except TypeError as error:
        known = ", ".join(field.name for field in dataclasses.fields(rules[name]))
        raise OfframpError(f"{name} in {text!r} takes the settings {known}") from error
