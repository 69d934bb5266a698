"""The parts of the documentation that are made from the code: the pages of the reference.

What stands between `<!-- generated: settings -->` and `<!-- end of generated -->` in a page is written
by `make reference`. A test fails when it is not what the code says, and mkdocs (see mkdocs.yml) makes
it anew for each build.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import typer

import rota.errors
from rota.app import App
from rota.cli import cli
from rota.cli.faults import EXIT_CODES
from rota.config import Settings
from rota.server.application import make_server
from rota.server.openapi import make_document
from rota.server.policy import route_table
from rota.server.requests import DEPENDENCIES
from rota.server.routes import all_routes

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from python_reference import python_reference  # noqa: E402

_MARK = re.compile(r"<!-- generated: (\w+) -->\n(?:.*?<!-- end of generated -->\n)?", re.DOTALL)

# A setting without a description here fails the build, and a test.
SETTINGS = {
    "database_url": "Where PostgreSQL is; several hosts for "
    "[failover](../guide/operations.md#failover). Without it, the embedded one is used.",
    "database_password": "The password, if it isn't in the URL; in code also a function: see "
    "[passwords that rotate](../guide/managed-postgres.md#passwords-that-rotate).",
    "database_password_file": "A file with the password, read for every new connection.",
    "event_loop": "The event loop of `rota start` and `rota dev`: `asyncio`, `uvloop`, or `auto`, "
    "which is uvloop where it is installed, see [uvloop](../guide/sizing.md#uvloop).",
    "pooler": "What stands before PostgreSQL: `auto`, `none`, `session` or `transaction`, see "
    "[poolers](../guide/managed-postgres.md#poolers-and-proxies).",
    "connect": "In code alone: a coroutine function that makes asyncpg's connections.",
    "read_url": "A [read replica](../guide/managed-postgres.md#read-replicas) for the server's lists, "
    "status and dashboard.",
    "read_max_lag": "Seconds; a replica that is further behind isn't used.",
    "data_dir": "Where the embedded PostgreSQL lives.",
    "schema": "The PostgreSQL schema of Rota's tables.",
    "installation": "Name of the installation; nodes refuse a database that belongs to another.",
    "namespace": "The wall between tenants: a node and a client see only their own.",
    "heartbeat": "Seconds between two signs of life of a node.",
    "missed_heartbeats": "So many heartbeats missed, and a node is dead.",
    "shard_lease": "Seconds for which a scheduler holds its shards without renewing them.",
    "dispatch": "The broker by which relays reach workers without a database: redis://, nats://, "
    "amqp:// or kafka://.",
    "dispatch_secret": "What relays and workers share; after a comma, the one before it.",
    "coordination": "Who shares the shards out: etcd://, zookeeper:// or consul://; empty: PostgreSQL.",
    "shards": "Into how many slices schedulers divide their work. Fixed when the schema is made; "
    "1: [a single leader](../guide/cluster.md#a-single-leader).",
    "poll": "Seconds after which an idle worker looks for work without having been told to.",
    "concurrency": "Coroutines that a node runs at a time.",
    "processes": "Child processes of a node, for plain functions.",
    "threads": 'Threads of a node, for tasks with `runner="thread"`.',
    "resources": "What this node has for jobs that ask for it: `gpu=2,memory=16GB`, a dict in code. "
    "Memory and CPU that are not named are those of the container or the machine.",
    "resource_patience": "Seconds for which a job may fit nowhere; then a node makes room for it.",
    "memory_limits": "How children and programs are kept within the memory of their job: `auto` (a "
    "cgroup where the node may make some, else rlimit), `cgroup`, `rlimit` or `none`.",
    "child_max_jobs": "Jobs after which a child process is replaced.",
    "child_max_memory": "Size from which a child process is replaced after its job: `500MB`.",
    "prefetch": "Jobs that a node claims ahead of a free slot, at the very most.",
    "grace": "Seconds that a shutdown leaves running jobs to end by themselves.",
    "kill_grace": "Seconds between asking a handler to stop and making it stop.",
    "max_crashes": "A job that went down with its process so often is quarantined.",
    "allow_commands": "Whether a node runs programs, see "
    "[schedules as files](../guide/schedule-files.md#programs).",
    "serve_endpoints": "Whether a worker pushes the jobs of the namespace's stored "
    "[endpoints](../guide/endpoints.md).",
    "max_payload_bytes": "The largest payload of a job.",
    "max_payload_depth": "How deeply a payload may be nested.",
    "max_result_bytes": "The largest result of a job.",
    "encryption_keys": "What payloads and results are [encrypted](../guide/encryption.md) with: "
    "`NAME:BASE64`, several with commas between them. The first encrypts, all of them open.",
    "encryption_keys_file": "A file with those keys, instead. It is read again when it is replaced.",
    "log_bytes": "Of what an attempt prints and logs, so much is kept; 0: nothing.",
    "log_lines_per_second": "Lines a second that are kept of an attempt, with bursts of twice as many.",
    "log_days": "Days that what jobs printed and logged is kept.",
    "metrics_port": "The port of this node for Prometheus (`/metrics`) and probes (`/healthz`, "
    "`/readyz`); 0: any that is free.",
    "metrics_host": "The address of that port. It has no passwords.",
    "retention_days": "Days that succeeded and cancelled jobs are kept.",
    "archive_dir": "The folder into which schedulers copy jobs before they remove them.",
    "app_name": "The application that declares schedules in code; by default the module of its `App`.",
    "release": "The application's release. The newest decides which schedules code declares.",
    "ledger_days": "Days that the occurrences of schedules are remembered.",
    "max_run_time": "Seconds that an attempt may take whose job has no timeout, in a queue without a "
    "maximum; 0: no limit. The same on all nodes.",
    "lag_after": "Seconds from which the lag of a queue's oldest ready job is an event; 0: never.",
    "late_after": "Seconds after its moment from which the start of an occurrence is an event.",
    "dead_letter_days": "Days that failed jobs are kept.",
    "host": "The address the server listens on. Off the loopback it needs TLS, see "
    "[the server](../guide/server.md#where-it-listens).",
    "port": "The port the server listens on; 0: any that is free.",
    "tls_cert": "The server's certificate (PEM), with those between it and the root.",
    "tls_key": "The private key of that certificate.",
    "status_page": "Show [a status page](../guide/monitoring.md#a-status-page) to everybody.",
    "insecure_public": "Listen off the loopback without TLS: a proxy or a mesh sees to it.",
    "public_url": "How people reach the server, when it isn't by its own address.",
    "trusted_proxies": "The proxies (addresses or networks, by comma) whose `X-Forwarded-For` and "
    "`X-Forwarded-Proto` the server believes.",
    "max_body_bytes": "The largest body of a request, but for bulk submits.",
    "max_connections": "Connections that the server has at a time.",
    "max_connections_per_address": "Of those, from one address that isn't a trusted proxy's.",
    "request_timeout": "Seconds for the whole of a request to arrive, and for a piece of an answer "
    "to be taken.",
    "session_hours": "Hours after which a person has to log in again.",
    "link_minutes": "Minutes that the link of `rota login` is good for.",
    "audit_days": "Days that the audit log goes back.",
    "oidc_issuer": "The OpenID Connect provider people log in with, "
    "see [access](../guide/access.md#openid-connect).",
    "oidc_client_id": "What the provider knows Rota as.",
    "oidc_client_secret": "The secret that goes with it.",
    "oidc_client_secret_file": "A file with that secret, instead. It is read at each login.",
    "oidc_groups": "Roles of the provider's groups, as JSON: see "
    "[groups](../guide/access.md#groups-of-the-provider).",
    "oidc_groups_claim": "The claim of ID tokens that has the groups.",
    "smtp_url": "The mail server by which workers send [notices](../guide/notices.md#e-mail).",
    "smtp_url_file": "A file with that URL, instead. It is read for each message.",
    "smtp_from": "The sender of those messages.",
    "pool_size": "Connections in a process's pool.",
    "connect_timeout": "Seconds to wait for a connection.",
    "statement_timeout": "Seconds that one of Rota's own statements may take.",
    "node_name": "How this node is called in lists and logs.",
}
_COMPUTED = {
    "data_dir": "`~/.local/share/rota`",
    "processes": "number of CPUs",
    "node_name": "the host's name",
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put what the code says between the marks. Called by mkdocs for each page."""
    return _MARK.sub(
        lambda mark: (
            f"<!-- generated: {mark[1]} -->\n\n{GENERATORS[mark[1]]().strip()}\n\n"
            "<!-- end of generated -->\n"
        ),
        markdown,
    )


def pages() -> list[Path]:
    """Return the pages that have generated parts."""
    return sorted(p for p in HERE.rglob("*.md") if _MARK.search(p.read_text("utf-8")))


def main() -> None:
    for page in pages():
        page.write_text(on_page_markdown(page.read_text("utf-8")), "utf-8")


def settings_table() -> str:
    rows = ["| setting | environment | default | |", "| --- | --- | --- | --- |"]
    for field in msgspec.structs.fields(Settings):
        default = _COMPUTED.get(field.name) or (
            "none" if field.default is None else f"`{field.default}`"
        )
        environment = f"`ROTA_{field.name.upper()}`"
        rows.append(f"| `{field.name}` | {environment} | {default} | {SETTINGS[field.name]} |")
    return "\n".join(rows)


def errors_tree() -> str:
    errors = [
        error
        for error in vars(rota.errors).values()
        if inspect.isclass(error) and error.__module__ == "rota.errors"
    ]
    tree = [
        line
        for root in errors
        if root.__bases__[0] not in errors
        for line in (root.__name__, *_below(root, errors))
    ]
    described = [f"\n### {e.__name__}\n\n{inspect.cleandoc(e.__doc__ or '')}" for e in errors]
    return "\n".join(["```text", *tree, "```", *described])


def _below(root: type, errors: list[type], indent: str = "") -> Iterator[str]:
    below = [error for error in errors if error.__bases__[0] is root]
    for error in below:
        last = error is below[-1]
        yield f"{indent}{'└── ' if last else '├── '}{error.__name__}"
        yield from _below(error, errors, indent + ("    " if last else "│   "))


def cli_reference() -> str:
    root = typer.main.get_command(cli)
    codes = ["| exit code | meaning |", "| --- | --- |"]
    codes += [f"| {code} | {text} |" for code, text in EXIT_CODES.items()]
    described = (line for command in _walk(root, "rota") for line in _describe(*command))
    return "\n".join([*codes, *described])


def _walk(command: Any, path: str) -> Iterator[tuple[Any, str]]:
    if path != "rota":
        yield command, path
    for name, inner in getattr(command, "commands", {}).items():
        yield from _walk(inner, f"{path} {name}")


def _describe(command: Any, path: str) -> Iterator[str]:
    options = [p for p in command.params if p.param_type_name == "option" and not _is_common(p)]
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    signature = " ".join((path, *(_argument(p) for p in arguments)))
    yield f"\n### {path}\n\n{inspect.cleandoc(command.help or '')}\n\n```text\n{signature}\n```\n"
    if arguments or options:
        yield "| | |\n| --- | --- |"
    for parameter in (*arguments, *options):
        name = parameter.metavar if parameter in arguments else _option(parameter)
        yield f"| `{name}` | {parameter.help or ''} |"


def _is_common(parameter: Any) -> bool:
    return parameter.name in {"output", "as_json", "database_url", "namespace", "help"}


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name).upper()
    name = f"{name} ..." if parameter.nargs == -1 else name
    return name if parameter.required else f"[{name}]"


def _option(parameter: Any) -> str:
    names = ", ".join(parameter.opts)
    return names if parameter.is_flag else f"{names} {parameter.metavar or parameter.name.upper()}"


def http_reference() -> str:
    """Every route, with the least role it asks for."""
    server = make_server(App(database_url="postgresql://nowhere/none"))
    roles = {(route.method.lower(), route.path): route.policy.role for route in route_table(server)}
    rows = ["| route | what it does | least role |", "| --- | --- | --- |"]
    document = msgspec.json.decode(make_document(all_routes(), DEPENDENCIES, route_table(server)))
    for path, item in document["paths"].items():
        for method, operation in item.items():
            role = roles[method, path]
            needed = role or "none"
            rows.append(f"| `{method.upper()} {path}` | {operation['summary']} | {needed} |")
    return "\n".join(rows)


GENERATORS = {
    "settings": settings_table, "errors": errors_tree, "cli": cli_reference,
    "http": http_reference, "python": python_reference,
}  # fmt: skip


if __name__ == "__main__":
    main()
