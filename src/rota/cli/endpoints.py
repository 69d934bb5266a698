"""`rota endpoints add|list|show|change|remove`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rota.app import App
from rota.cli.output import plain, table
from rota.cli.session import Session, callback, command
from rota.errors import ConfigError
from rota.model import GuaranteeName
from rota.operations.endpoints import EndpointStatus, NewEndpoint
from rota.store.endpoints import RetryNumbers

group = typer.Typer(help="Tasks that are HTTP endpoints, pushed by every worker of the namespace.")
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The task's name.")]
_Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="Another address.")]
_Queue = Annotated[str | None, typer.Option(help="Where its jobs wait; default.")]
_Need = Annotated[
    list[str] | None, typer.Option("--need", help="A capability its worker must have. Repeatable.")
]
_Guarantee = Annotated[
    GuaranteeName | None, typer.Option(help="at_least_once (the default) or at_most_once.")
]
_Attempts = Annotated[int | None, typer.Option("--max-attempts", min=1, help="In all; 5.")]
_Base = Annotated[
    float | None, typer.Option("--retry-base", min=0, help="Seconds before the second attempt; 2.")
]
_Timeout = Annotated[float | None, typer.Option(help="Seconds for an answer; 30.")]
_CallbackTimeout = Annotated[
    float | None, typer.Option(help="Seconds for the callback, after a 202; 3600.")
]
_SecretFile = Annotated[
    typer.FileText | None,
    typer.Option(metavar="FILE", help="What pushes are signed with; - is standard input."),
]


@callback(group)
def root(session: Session, context: typer.Context) -> None:
    session.screen.help(context)


@command(group, "add")
def add(
    session: Session,
    name: _Name,
    url: Annotated[str, typer.Argument(metavar="URL")],
    queue: _Queue = None,
    need: _Need = None,
    guarantee: _Guarantee = None,
    max_attempts: _Attempts = None,
    retry_base: _Base = None,
    timeout: _Timeout = None,
    callback_timeout: _CallbackTimeout = None,
    secret_file: _SecretFile = None,
) -> None:
    """Make an HTTP endpoint a task: its jobs are pushed there, signed."""
    given = _given(queue=queue, needs=need, guarantee=guarantee, timeout=timeout,
                   callback_timeout=callback_timeout, secret=_read(secret_file))  # fmt: skip
    retry = _retry(RetryNumbers(), max_attempts, retry_base)
    new = session.run(_add(session.app, name, url, {**given, "retry": retry}))
    if session.screen.as_json:
        session.screen.json(new)
        return
    session.screen.say(f"added {name}")
    session.screen.say(f"secret {new.secret}")
    session.screen.note("Pushes are signed with this secret. It is not shown again.")


async def _add(app: App, name: str, url: str, given: dict[str, Any]) -> NewEndpoint:
    return await app.endpoints.add(name, url, **given)


@command(group, "list")
def list_endpoints(session: Session) -> None:
    """The endpoints of the namespace, without their secrets."""
    screen = session.screen
    endpoints = session.run(session.app.endpoints.list())
    if screen.as_json:
        screen.json(endpoints)
        return
    if not endpoints:
        screen.note("No endpoints: `rota endpoints add NAME URL` makes one.")
        return
    rows = table("name", "url", "queue", "guarantee", "attempts", "timeout", whole=["name"])
    for each in endpoints:
        rows.add_row(
            each.name, plain(each.url), "+".join([each.queue, *each.needs]), each.guarantee,
            str(each.retry.max_attempts), f"{each.timeout:g} s",
        )  # fmt: skip
    screen.show(rows)


@command(group, "show")
def show(session: Session, name: _Name) -> None:
    """One endpoint, without its secret."""
    _tell(session, session.run(session.app.endpoints.get(name)))


@command(group, "change")
def change(
    session: Session,
    name: _Name,
    url: _Url = None,
    queue: _Queue = None,
    need: _Need = None,
    guarantee: _Guarantee = None,
    max_attempts: _Attempts = None,
    retry_base: _Base = None,
    timeout: _Timeout = None,
    callback_timeout: _CallbackTimeout = None,
    secret_file: _SecretFile = None,
) -> None:
    """Change what is given, and leave the rest. It holds within seconds."""
    given = _given(url=url, queue=queue, needs=need, guarantee=guarantee, timeout=timeout,
                   callback_timeout=callback_timeout, secret=_read(secret_file))  # fmt: skip
    _tell(session, session.run(_change(session.app, name, given, max_attempts, retry_base)))


async def _change(
    app: App, name: str, given: dict[str, Any], attempts: int | None, base: float | None
) -> EndpointStatus:
    before = await app.endpoints.get(name)
    retry = _retry(before.retry, attempts, base)
    if retry != before.retry:
        given["retry"] = retry
    if not given:
        raise ConfigError("say what is to be changed: `rota endpoints change --help`")
    return await app.endpoints.change(name, **given)


@command(group, "remove")
def remove(session: Session, name: _Name) -> None:
    """Push nothing there any more. Its jobs stay in their queue."""
    session.run(_remove(session.app, name))
    if session.screen.as_json:
        session.screen.json({"removed": name})
    else:
        session.screen.say(f"removed {name}")


async def _remove(app: App, name: str) -> None:
    await app.endpoints.remove(name)


def _tell(session: Session, endpoint: EndpointStatus) -> None:
    if session.screen.as_json:
        session.screen.json(endpoint)
        return
    rows = table("", "")
    for field in endpoint.__struct_fields__:
        value = getattr(endpoint, field)
        shown = ", ".join(value) if isinstance(value, tuple) else str(value)
        rows.add_row(field, plain(shown))
    session.screen.show(rows)


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _read(file: typer.FileText | None) -> str | None:
    return None if file is None else file.read().strip()


def _retry(before: RetryNumbers, attempts: int | None, base: float | None) -> RetryNumbers:
    return RetryNumbers(
        max_attempts=attempts or before.max_attempts, base=before.base if base is None else base,
        factor=before.factor, cap=before.cap, jitter=before.jitter,
    )  # fmt: skip
