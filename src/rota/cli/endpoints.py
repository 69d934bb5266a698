"""`rota endpoints`: tasks that are HTTP endpoints."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rota.app import App
from rota.cli.options import Yes
from rota.cli.output import plain, table
from rota.cli.session import Session, callback, command
from rota.errors import ConfigError
from rota.model import GuaranteeName
from rota.operations.endpoints import EndpointStatus
from rota.store.endpoints import RetryNumbers

group = typer.Typer(help="Manage endpoints: tasks whose jobs are pushed to a URL.")
_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the endpoint, which is its task's name.")
]
_Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="New URL.")]
_Queue = Annotated[str | None, typer.Option(help="Queue of its jobs. (default: default)")]
_Need = Annotated[
    list[str] | None, typer.Option("--need", help="Capability that a worker must have. Repeatable.")
]
_Guarantee = Annotated[
    GuaranteeName | None, typer.Option(help="Delivery guarantee. (default: at_least_once)")
]
_Attempts = Annotated[
    int | None,
    typer.Option("--max-attempts", min=1, help="Maximum number of attempts. (default: 5)"),
]
_Base = Annotated[
    float | None,
    typer.Option("--retry-base", min=0, help="Seconds before the second attempt. (default: 2)"),
]
_Timeout = Annotated[
    float | None, typer.Option(help="Seconds to wait for an answer. (default: 30)")
]
_CallbackTimeout = Annotated[
    float | None,
    typer.Option(help="Seconds to wait for the callback, after a 202. (default: 3600)"),
]
_SecretFile = Annotated[
    typer.FileText | None,
    typer.Option(
        metavar="FILE", help="File with the secret that signs the pushes; - is standard input."
    ),
]


@callback(group)
def root(session: Session, context: typer.Context) -> None:
    session.screen.help(context)


@command(group, "add")
def add(
    session: Session,
    name: _Name,
    url: Annotated[str, typer.Argument(metavar="URL", help="An http or https URL.")],
    queue: _Queue = None,
    need: _Need = None,
    guarantee: _Guarantee = None,
    max_attempts: _Attempts = None,
    retry_base: _Base = None,
    timeout: _Timeout = None,
    callback_timeout: _CallbackTimeout = None,
    secret_file: _SecretFile = None,
) -> None:
    """Add an endpoint: its jobs are pushed to a URL, signed."""
    given = _given(queue=queue, needs=need, guarantee=guarantee, timeout=timeout,
                   callback_timeout=callback_timeout, secret=_read(secret_file))  # fmt: skip
    retry = _retry(RetryNumbers(), max_attempts, retry_base)
    new = session.run(session.app.endpoints.add(name, url, **given, retry=retry))
    session.screen.answer(new, f"added {name}", f"secret {new.secret}")
    session.screen.note("Pushes are signed with this secret. It is not shown again.")


@command(group, "list")
def list_endpoints(session: Session) -> None:
    """List the endpoints of the namespace, without their secrets."""
    screen = session.screen
    endpoints = session.run(session.app.endpoints.list())
    if not screen.listing(endpoints, "No endpoints. Add one: rota endpoints add NAME URL"):
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
    """Show an endpoint, without its secret."""
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
    """Change the given settings of an endpoint, within seconds."""
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
        raise ConfigError("give at least one option to change: `rota endpoints change --help`")
    return await app.endpoints.change(name, **given)


@command(group, "remove")
def remove(session: Session, name: _Name, yes: Yes = False) -> None:
    """Remove an endpoint. Its jobs stay in their queue."""
    session.confirm(f"Remove endpoint {name}?", yes)
    session.run(session.app.endpoints.remove(name))
    session.screen.answer({"removed": name}, f"removed {name}")


def _tell(session: Session, endpoint: EndpointStatus) -> None:
    if session.screen.structured:
        session.screen.document(endpoint)
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
