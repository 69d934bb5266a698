"""When to try again."""

from __future__ import annotations

from rota.model import Failure, Retry

LONGEST_DELAY = 366 * 86_400.0


def retry_delay(retry: Retry, attempt: int, noise: float) -> float:
    """Seconds before the attempt after this one. `noise` is a random number in [0, 1)."""
    # The exponent is bounded before it is used: factor ** 30000 is not a float.
    steps = min(max(attempt - 1, 0), 64)
    try:
        growth = retry.factor**steps
    except OverflowError:
        growth = 1e300
    delay = min(retry.base * growth, retry.cap)
    return bounded_delay(delay * (1 + retry.jitter * (2 * noise - 1)))


def bounded_delay(seconds: float) -> float:
    """A delay that the database can add to its time, whatever a handler asked for."""
    return min(seconds, LONGEST_DELAY) if seconds > 0 else 0.0  # also without NaN


def may_retry(retry: Retry, failure: Failure | None) -> bool:
    """Whether the policy's per-exception rules allow another try."""
    lineage = set(failure.lineage) if failure else set()
    if any(_matches(rule, lineage) for rule in retry.never_on):
        return False
    return not retry.only_on or any(_matches(rule, lineage) for rule in retry.only_on)


def _matches(rule: type[BaseException] | str, lineage: set[str]) -> bool:
    """`lineage` has the dotted names of an exception's class and its bases."""
    if isinstance(rule, str):
        return rule in lineage or f"builtins.{rule}" in lineage
    return f"{rule.__module__}.{rule.__qualname__}" in lineage
