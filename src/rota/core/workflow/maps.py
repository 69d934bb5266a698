"""Options of a task that rule out a map over it: promises that members of a map could not keep."""

from __future__ import annotations

from collections.abc import Sequence

from rota.errors import ConfigError
from rota.model import Guarantee


def check_mapped(
    where: str, task: str, *, each: str, size: int | None, guarantee: int | None = None,
    rated: bool = False, keys: Sequence[str] = (),
) -> None:  # fmt: skip
    """Refuse a map of such a task. `keys`: the keys that it computes from the arguments of each job.

    A task's `concurrency` holds for a map: the members of a chunk run one after the other.
    """
    if keys:
        instead = (
            "take the limit inside of the task, with ctx.limit()"
            if keys[0] == "concurrency_key"
            else "map a task that submits its jobs"
        )
        raise ConfigError(
            f"{where}: task {task!r} has a {keys[0]}, which is computed where a job is submitted, and "
            f"members of a map are not: {instead}", field="map",
        )  # fmt: skip
    if each != "chunk":
        return
    if guarantee not in (None, Guarantee.AT_LEAST_ONCE):
        raise ConfigError(
            f"{where}: task {task!r} is {Guarantee(guarantee).label}, which a member of a chunk can't "
            'be: map it with each="job"', field="each",
        )  # fmt: skip
    if rated and size not in (None, 1):
        raise ConfigError(
            f"{where}: task {task!r} has a rate, which counts the jobs that start, and a chunk of "
            f"{size:,} members is one job: leave size out, and each member is a job that waits for its "
            "turn",
            field="size",
        )  # fmt: skip
