"""`python -m offramp`, and so `torchrun -m offramp train …`."""

from offramp.cli import main

main()
