"""What the papers report, to stand beside our numbers."""

from __future__ import annotations

ROMEBERT_FIGURES = {
    "sst-2": {
        "romebert": (82.9, 85.6, 87.0, 88.3, 88.9, 89.7, 91.1, 91.2, 91.9, 92.0, 92.1, 92.1),
        "deebert": (74.5, 79.0, 80.0, 80.0, 80.4, 81.8, 85.3, 88.2, 91.2, 93.0, 93.3, 92.9),
    },
    "mrpc": {
        "romebert": (81.2, 82.4, 82.0, 85.8, 85.6, 87.3, 87.9, 88.6, 89.5, 89.9, 90.0, 90.4),
        "deebert": (81.2, 81.2, 81.2, 82.2, 83.4, 82.9, 84.9, 85.0, 86.1, 88.5, 90.2, 90.5),
    },
    "rte": {
        "romebert": (50.5, 55.2, 61.4, 62.5, 63.9, 64.3, 66.1, 65.0, 65.0, 67.2, 68.6, 70.8),
        "deebert": (49.8, 56.3, 54.2, 55.6, 57.8, 58.9, 59.6, 59.9, 64.3, 63.2, 67.2, 68.2),
    },
    "mnli-small": {
        "romebert": (62.8, 73.3, 77.5, 79.7, 81.0, 82.2, 83.3, 83.6, 84.1, 84.4, 84.6, 84.7),
        "deebert": (42.9, 44.7, 51.6, 58.3, 64.3, 70.6, 74.5, 77.1, 79.4, 80.8, 83.5, 85.0),
    },
}
"""Dev scores of each of the 12 exits of BERT-base, read by eye off the figures of RomeBERT's repository (± 0.2)."""

ELASTICBERT_STATIC = {
    "cola": {"BERT-base": (44.6, 56.5), "ElasticBERT-base": (53.7, 64.3)},
    "mnli-small": {"BERT-base": (81.4, 84.6), "ElasticBERT-base": (84.3, 85.3)},
    "mrpc": {"BERT-base": (84.9, 87.6), "ElasticBERT-base": (89.7, 91.0)},
    "rte": {"BERT-base": (65.7, 69.0), "ElasticBERT-base": (74.0, 76.5)},
    "sst-2": {"BERT-base": (90.9, 92.9), "ElasticBERT-base": (92.7, 94.3)},
    "sts-b": {"BERT-base": (88.1, 89.4), "ElasticBERT-base": (90.2, 90.7)},
}
"""ElasticBERT's GLUE dev table: the first 6 layers trained by themselves, and all 12. MNLI is the matched half."""

DEEBERT_SAVINGS = {
    "sst-2": (("− 0.2", 21), ("− 0.6", 40), ("− 2.1", 47)),
    "mrpc": (("− 0.3", 14), ("− 1.3", 31), ("− 3.0", 44)),
    "rte": (("− 0.4", 9), ("− 0.6", 11), ("− 3.2", 33)),
    "mnli-small": (("− 0.0", 14), ("− 0.8", 25), ("− 3.9", 37)),
}
"""DeeBERT's table 1, BERT-base on the GLUE test server: points lost, and percent of the run time saved."""
