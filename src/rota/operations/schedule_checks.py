"""Whether a schedule's task is known and takes its payload, by the code or by what nodes registered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rota.core.arguments import encode_payload
from rota.core.time.lint import Warned
from rota.core.time.schedule import ScheduleSpec
from rota.errors import InvalidArguments

if TYPE_CHECKING:
    from rota.operations.rota import Rota


async def task_warnings(rota: Rota, spec: ScheduleSpec) -> tuple[str, ...]:
    """What to tell whoever makes it. Raises `InvalidArguments` for a payload that would not run."""
    payload = dict(spec.payload or {})
    try:
        if (task := rota.tasks.get(spec.task)) is not None:
            task.arguments.encode((), payload, rota.limits)
            return ()
        signatures = await rota.signatures()
        encoded = encode_payload(payload, rota.limits, spec.task)
        return await signatures.check(rota.namespace, spec.task, encoded)
    except InvalidArguments as error:
        raise InvalidArguments(f"schedule {spec.name!r}: {error}") from None


async def lint_tasks(rota: Rota, specs: Iterable[ScheduleSpec]) -> list[Warned]:
    """The schedules whose task nobody has registered, or doesn't take their payload."""
    found: list[Warned] = []
    unknown: dict[str, tuple[str, ...]] = {}
    for spec in specs:
        try:
            told = unknown.get(spec.task) or await task_warnings(rota, spec)
            if told:
                unknown[spec.task] = told
                message = f"schedule {spec.name!r}: {'; '.join(told)}"
                found.append(Warned("unknown_task", spec.name, message))
        except InvalidArguments as error:
            found.append(Warned("wrong_arguments", spec.name, str(error)))
    return found
