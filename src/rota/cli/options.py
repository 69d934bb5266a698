"""Options and arguments that several commands have: the same name, the same help text."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from rota.cli.moments import When, parse_when

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
]
_MANY = "Maximum number of results."
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help=_MANY)]
LongLimit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help=_MANY)]
Since = Annotated[
    When | None,
    typer.Option(
        "--since", metavar="TIME", parser=parse_when,
        help="Only show what happened at or after this time: -2d, 2027-01-31 (UTC) or "
        "2027-01-31T09:00+01:00.",
    ),
]  # fmt: skip
Until = Annotated[
    When | None,
    typer.Option(
        "--until", metavar="TIME", parser=parse_when,
        help="Only show what happened before this time.",
    ),
]  # fmt: skip
AllNamespaces = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="Include all namespaces, not only this one.")
]
UserRole = Annotated[
    Literal["viewer", "operator", "admin"], typer.Option("--role", help="Role of the user.")
]
TokenRole = Annotated[
    Literal["viewer", "operator", "admin", "worker"],
    typer.Option("--role", help="Role of the token."),
]
NamespaceName = Annotated[str, typer.Argument(metavar="NAMESPACE", help="Name of the namespace.")]
