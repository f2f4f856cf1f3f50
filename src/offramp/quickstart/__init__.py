"""The whole loop in one command: train, evaluate, calibrate and measure, on generated reviews or a user's own data."""
