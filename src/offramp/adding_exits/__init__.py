"""Exits for a classifier that is fine-tuned already: it stays as it is, and its exits are trained and calibrated."""
