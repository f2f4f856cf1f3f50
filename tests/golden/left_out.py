"""What the golden numbers hold and offramp does not reproduce, by name."""

from __future__ import annotations

from tests.golden.cases import GoldenCase

ROMEBERT_VARIANTS = ("group", "ta", "bidir")


def array_left_out(case: GoldenCase, name: str) -> str | None:
    """Why one array is left out; None for those that are checked."""
    if case.system != "romebert":
        return None
    variant = name.split(":")[1].split("/")[0]
    if variant == "moco":
        return "RomeBERT's momentum teacher, which its own scripts never use"
    kind = case.settings.get("sd_variants", {}).get(variant, {}).get("kd_loss_type", "raw")
    return f"RomeBERT's {kind!r} loss, which its own scripts never use" if kind in ROMEBERT_VARIANTS else None
