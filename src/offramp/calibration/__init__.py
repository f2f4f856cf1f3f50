"""Risk control: which operating point may be used, so that no more is lost than was said."""

from offramp.calibration.calibrate import Calibration, Promise, Uncertified, calibrate_trace
from offramp.calibration.run import calibrate

__all__ = ["Calibration", "Promise", "Uncertified", "calibrate", "calibrate_trace"]
