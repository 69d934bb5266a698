"""What the tasks of `proof.machines` promise: also read where nothing of Rota is loaded."""

from __future__ import annotations

GPU = "gpu"
AMOUNTS = {"one_gpu": 1, "two_gpus": 2, "most_gpus": 6}  # how much of it a job takes
LARGEST = "most_gpus"
PATIENCE = 4.0  # seconds that a job may fit nowhere
LONGEST = 4.0  # seconds that one runs

_HAVE = (2, 3, 6)


def capacity_of(process: str) -> int:
    """Return how much the machine of a process has, by its number: n2.1 is the first life of n2."""
    digits = "".join(filter(str.isdigit, process.partition(".")[0]))
    return _HAVE[int(digits or 0) % len(_HAVE)]
