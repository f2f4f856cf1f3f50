"""Every recipe. A new recipe adds one row."""

from __future__ import annotations

from offramp.recipes import EBERT, ELBERT, DeeBERT, ElasticBERT, Frozen, Offramp, Plain, Recipe, RomeBERT, Schedule

ON_EVERYTHING = ("ebert", "ebert+elasticbert")
"""Of the rows with gates those that are tried on every backbone and head; the others on some."""

FAST = Schedule(learning_rate=3e-3, epochs=6, clip=1.0)

MATRIX: dict[str, Recipe] = {
    "plain": Plain(FAST),
    "deebert": DeeBERT(FAST),
    "deebert+sd": DeeBERT(FAST, gamma=0.9),
    "romebert": RomeBERT(schedule=FAST),
    "romebert, last first": RomeBERT(first="last", schedule=FAST),
    "romebert without projection": RomeBERT(regularise=False, schedule=FAST),
    "romebert with equilibrium": RomeBERT(equilibrium=True, schedule=FAST),
    "elasticbert": ElasticBERT(schedule=FAST),
    "elasticbert without equilibrium": ElasticBERT(equilibrium=False, schedule=FAST),
    "elbert": ELBERT(schedule=FAST),
    "elbert, equal": ELBERT("equal", schedule=FAST),
    "offramp": Offramp(schedule=FAST),
    "offramp in one phase": Offramp(fine_tune=False, schedule=FAST),
    "frozen": Frozen(schedule=FAST),
    "ebert": EBERT(target=0.6, schedule=FAST),
    "ebert by blocks, retrained": EBERT(target=0.6, block=8, retrain=6, schedule=FAST),
    "ebert by rank": EBERT(target=0.6, heads="topk", neurons="topk", schedule=FAST),
    "ebert with distillation": EBERT(target=0.6, distil=0.5, schedule=FAST),
    "ebert+elasticbert": EBERT(target=0.6, base=ElasticBERT(), schedule=FAST),
    "ebert+deebert": EBERT(target=0.6, base=DeeBERT(), schedule=FAST),
    "ebert+romebert": EBERT(target=0.6, base=RomeBERT(), schedule=FAST),
    "ebert+elbert": EBERT(target=0.6, base=ELBERT(), schedule=FAST),
}
