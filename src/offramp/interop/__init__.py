"""Opening what others wrote, and writing it as our own."""

from offramp.interop.checkpoint import Checkpoint, read_checkpoint
from offramp.interop.conversion import convert
from offramp.interop.loading import load

__all__ = ["Checkpoint", "convert", "load", "read_checkpoint"]
