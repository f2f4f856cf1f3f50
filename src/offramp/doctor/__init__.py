"""What this machine offers, what offramp will use of it, and what would help: `offramp doctor`."""

from offramp.doctor.examination import Examination, examine
from offramp.doctor.findings import Finding

__all__ = ["Examination", "Finding", "examine"]
