"""What a task declares binds those who submit its jobs over HTTP, wherever its code runs."""

from __future__ import annotations

from collections.abc import Collection

from rota.model import Guarantee
from rota.operations.rota import Rota
from rota.server.api.job_requests import check_guarantee


async def declared_guarantees(tenant: Rota, tasks: Collection[str]) -> dict[str, int]:
    """By task, for those that are declared: in this server's app, or by a node that has been there."""
    known = {name: tenant.tasks[name].options_.guarantee for name in tasks if name in tenant.tasks}
    found: dict[str, int] = {name: int(guarantee) for name, guarantee in known.items()}
    if elsewhere := [name for name in tasks if name not in found]:
        database = (await tenant.store()).database
        rows = await database.fetch("defaults_of_tasks", tenant.namespace, elsewhere)
        found.update({row["name"]: row["guarantee"] for row in rows})
    return found


async def check_declared(tenant: Rota, task: str, asked: int | str | None) -> None:
    """Refuses another guarantee than the declared one. Who asks for none costs nothing."""
    if asked is not None:
        wanted = int(Guarantee.parse(asked)) if isinstance(asked, str) else asked
        check_guarantee(task, wanted, (await declared_guarantees(tenant, [task])).get(task))
