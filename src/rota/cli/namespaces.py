"""`rota namespaces`: who shares this installation, and how much each may use."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.app import App
from rota.cli.access import change_of
from rota.cli.output import plain, table
from rota.cli.session import Session, callback, command
from rota.config import check_name
from rota.errors import NotFound
from rota.store.quotas import Limits, Namespace, QuotaStore

group = typer.Typer(help="Namespaces: who shares this installation, and how much each may use.")

Name = Annotated[str, typer.Argument(metavar="NAME")]


@callback(group)
@command(group, "list")
def list_namespaces(session: Session) -> None:
    """The namespaces that were used or have limits."""
    found = session.run(_list(session.app))
    screen = session.screen
    if screen.as_json:
        screen.json(found)
        return
    if not found:
        screen.note("No namespaces yet: the first submit to one makes it.")
        return
    columns = ("jobs at most", "payload bytes at most", "submits a second")
    encrypted = session.run(_encrypted(session.app))
    rows = table("namespace", *columns, "encrypted", right=columns)
    for each in found:
        limits = each.limits
        shown = (limits.max_jobs, limits.max_payload_bytes, limits.submits_per_second)
        said = ["-" if n is None else f"{n:,}" for n in shown]
        rows.add_row(plain(each.name), *said, "yes" if each.name in encrypted else "no")
    screen.show(rows)


async def _store(app: App) -> QuotaStore:
    return QuotaStore((await app.store()).database)


async def _encrypted(app: App) -> set[str]:
    rows = await (await app.store()).database.fetch("encrypted_namespaces")
    return {row["name"] for row in rows}


async def _list(app: App) -> list[Namespace]:
    return await (await _store(app)).list_namespaces()


@command(group, "limit")
def limit(
    session: Session,
    name: Name,
    max_jobs: Annotated[
        int | None, typer.Option(min=0, help="Jobs that wait, run or have failed.")
    ] = None,
    max_payload_bytes: Annotated[
        int | None, typer.Option(min=0, help="Of those jobs' payloads, together.")
    ] = None,
    submits_per_second: Annotated[
        float | None, typer.Option(help="As many at once as a second allows.")
    ] = None,
) -> None:
    """Set what a namespace may use through the server. What isn't given has no limit."""
    if submits_per_second is not None and not submits_per_second > 0:
        raise typer.BadParameter("must be above 0", param_hint="--submits-per-second")
    limits = Limits(
        max_jobs=max_jobs, max_payload_bytes=max_payload_bytes,
        submits_per_second=submits_per_second,
    )  # fmt: skip
    namespace = session.run(_limit(session.app, check_name("namespace", name), limits))
    if session.screen.as_json:
        session.screen.json(namespace)
    else:
        session.screen.say(f"the limits of {name} hold within five seconds")


async def _limit(app: App, name: str, limits: Limits) -> Namespace:
    store = await _store(app)
    async with change_of(app, "limit", f"namespace {name}", namespace=name) as change:
        change.before = await store.get_namespace(name)
        change.after = after = await store.put_namespace(name, limits)
    return after


@command(group, "unlimit")
def unlimit(session: Session, name: Name) -> None:
    """Take a namespace's limits away. Its jobs stay."""
    session.run(_unlimit(session.app, name))
    if session.screen.as_json:
        session.screen.json({"namespace": name, "limits": None})
    else:
        session.screen.say(f"{name} has no limits any more")


async def _unlimit(app: App, name: str) -> None:
    async with change_of(app, "unlimit", f"namespace {name}", namespace=name) as change:
        change.before = await (await _store(app)).remove_namespace(name)
        if change.before is None:
            raise NotFound(f"namespace {name!r} has no limits; `rota namespaces` lists them")
