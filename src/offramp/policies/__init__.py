"""When to leave: rules over what the exits have said so far. One file a rule; every file here is found by itself."""

from offramp.discovery import import_all
from offramp.policies.base import (
    REGISTRY,
    PerLayer,
    Policy,
    State,
    first_exit,
    join_rows,
    policy_from_json,
    select_rows,
)
from offramp.policies.combined import Both, Either
from offramp.policies.confidence import Confidence
from offramp.policies.entropy import Entropy, entropy
from offramp.policies.fixed import Fixed, Scripted
from offramp.policies.patience import Patience
from offramp.policies.ruled_out import RuledOut
from offramp.policies.text import policy_from_text
from offramp.policies.threshold import Threshold
from offramp.policies.window import Window

import_all(__name__, __path__)

__all__ = [
    "REGISTRY",
    "Both",
    "Confidence",
    "Either",
    "Entropy",
    "Fixed",
    "Patience",
    "PerLayer",
    "Policy",
    "RuledOut",
    "Scripted",
    "State",
    "Threshold",
    "Window",
    "entropy",
    "first_exit",
    "join_rows",
    "policy_from_json",
    "policy_from_text",
    "select_rows",
]
