"""Every recipe. A new recipe adds one row."""

from __future__ import annotations

from offramp.recipes import ELBERT, DeeBERT, ElasticBERT, Plain, Recipe, RomeBERT, Schedule

FAST = Schedule(learning_rate=3e-3, epochs=6, clip=1.0)

MATRIX: dict[str, Recipe] = {
    "plain": Plain(FAST),
    "deebert": DeeBERT(FAST),
    "romebert": RomeBERT(schedule=FAST),
    "romebert, last first": RomeBERT(first="last", schedule=FAST),
    "romebert without projection": RomeBERT(regularise=False, schedule=FAST),
    "romebert with equilibrium": RomeBERT(equilibrium=True, schedule=FAST),
    "elasticbert": ElasticBERT(schedule=FAST),
    "elasticbert without equilibrium": ElasticBERT(equilibrium=False, schedule=FAST),
    "elbert": ELBERT(schedule=FAST),
    "elbert, equal": ELBERT("equal", schedule=FAST),
}
