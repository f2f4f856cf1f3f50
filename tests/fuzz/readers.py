"""Every reader there is, by name."""

from __future__ import annotations

from tests.fuzz import evaluations, model_folders, policies, tables
from tests.fuzz.contract import Target

TARGETS: dict[str, Target] = {**tables.TARGETS, **policies.TARGETS, **model_folders.TARGETS, **evaluations.TARGETS}
