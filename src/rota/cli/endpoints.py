"""`rota endpoints`: tasks that are HTTP endpoints."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from rota.app import App
from rota.cli.options import Need, Yes, argument, given, option
from rota.cli.output import table
from rota.cli.session import Session, command, make_group
from rota.core.administration import EndpointStatus, RetryNumbers
from rota.errors import ConfigError
from rota.model import GuaranteeName

group = make_group("Manage endpoints: tasks whose jobs are pushed to a URL.")
_Name = Annotated[str, argument("NAME", "Name of the endpoint, which is its task's name.")]
_Queue = Annotated[str | None, option("Queue of its jobs. (default: default)")]
_Guarantee = Annotated[GuaranteeName | None, option("Delivery guarantee. (default: at_least_once)")]
_Attempts = Annotated[int | None, option("Maximum number of attempts. (default: 5)", min=1)]
_Base = Annotated[float | None, option("Seconds before the second attempt. (default: 2)", min=0)]
_Timeout = Annotated[float | None, option("Seconds to wait for an answer. (default: 30)")]
_CallbackTimeout = Annotated[
    float | None, option("Seconds to wait for the callback, after a 202. (default: 3600)")
]
_SecretFile = Annotated[
    typer.FileText | None,
    option("File with the secret that signs the pushes; - is standard input.", metavar="FILE"),
]


@command(group, "add")
def add(
    session: Session,
    name: _Name,
    url: Annotated[str, argument("URL", "An http or https URL.")],
    queue: _Queue = None,
    need: Need = None,
    guarantee: _Guarantee = None,
    max_attempts: _Attempts = None,
    retry_base: _Base = None,
    timeout: _Timeout = None,
    callback_timeout: _CallbackTimeout = None,
    secret_file: _SecretFile = None,
) -> None:
    """Add an endpoint: its jobs are pushed to a URL, signed."""
    changes = given(queue=queue, needs=need, guarantee=guarantee, timeout=timeout,
                   callback_timeout=callback_timeout, secret=_read(secret_file))  # fmt: skip
    retry = _retry(RetryNumbers(), max_attempts, retry_base)
    new = session.run(session.app.endpoints.add(name, url, **changes, retry=retry))
    session.screen.answer(new, f"added {name}", f"secret {new.secret}")
    session.screen.note("Pushes are signed with this secret. It is not shown again.")


@command(group, "list")
def list_endpoints(session: Session) -> None:
    """List the endpoints of the namespace, without their secrets."""
    endpoints = session.run(session.app.endpoints.list())
    session.screen.listing(
        endpoints, "No endpoints. Add one: rota endpoints add NAME URL",
        ("name", "url", "queue", "guarantee", "attempts", "timeout"),
        (
            (each.name, each.url, "+".join([each.queue, *each.needs]), each.guarantee,
             str(each.retry.max_attempts), f"{each.timeout:g} s")
            for each in endpoints
        ),
        whole=["name"],
    )  # fmt: skip


@command(group, "show")
def show(session: Session, name: _Name) -> None:
    """Show an endpoint, without its secret."""
    _show(session, session.run(session.app.endpoints.get(name)))


@command(group, "change")
def change(
    session: Session,
    name: _Name,
    url: Annotated[str | None, option("New URL.", metavar="URL")] = None,
    queue: _Queue = None,
    need: Need = None,
    guarantee: _Guarantee = None,
    max_attempts: _Attempts = None,
    retry_base: _Base = None,
    timeout: _Timeout = None,
    callback_timeout: _CallbackTimeout = None,
    secret_file: _SecretFile = None,
) -> None:
    """Change the given settings of an endpoint, within seconds."""
    changes = given(url=url, queue=queue, needs=need, guarantee=guarantee, timeout=timeout,
                   callback_timeout=callback_timeout, secret=_read(secret_file))  # fmt: skip
    _show(session, session.run(_change(session.app, name, changes, max_attempts, retry_base)))


async def _change(
    app: App, name: str, changes: dict[str, Any], attempts: int | None, base: float | None
) -> EndpointStatus:
    before = await app.endpoints.get(name)
    retry = _retry(before.retry, attempts, base)
    if retry != before.retry:
        changes["retry"] = retry
    if not changes:
        raise ConfigError("give at least one option to change: `rota endpoints change --help`")
    return await app.endpoints.change(name, **changes)


@command(group, "remove")
def remove(session: Session, name: _Name, yes: Yes = False) -> None:
    """Remove an endpoint. Its jobs stay in their queue."""
    session.confirm(f"Remove endpoint {name}?", yes)
    session.run(session.app.endpoints.remove(name))
    session.screen.answer({"removed": name}, f"removed {name}")


def _show(session: Session, endpoint: EndpointStatus) -> None:
    if session.screen.structured:
        session.screen.document(endpoint)
        return
    fields = {field: getattr(endpoint, field) for field in endpoint.__struct_fields__}
    rows = (
        (name, ", ".join(value) if isinstance(value, tuple) else str(value))
        for name, value in fields.items()
    )
    session.screen.show(table(("", ""), rows))


def _read(file: typer.FileText | None) -> str | None:
    return None if file is None else file.read().strip()


def _retry(before: RetryNumbers, attempts: int | None, base: float | None) -> RetryNumbers:
    return msgspec.structs.replace(
        before, max_attempts=attempts or before.max_attempts,
        base=before.base if base is None else base,
    )  # fmt: skip
