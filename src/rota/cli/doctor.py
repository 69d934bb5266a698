"""`rota doctor`: check an installation, and say what to do."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.text import Text

from rota.cli.options import option
from rota.cli.session import Session

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def doctor(
    session: Session,
    strict: Annotated[bool, option("Exit with 1 on any warning.")] = False,
    quiet: Annotated[bool, option("Only show warnings and problems.", "--quiet", "-q")] = False,
) -> None:
    """Check the database and the installation, and show what to do; exit with 1 on a problem."""
    diagnosis = session.run(session.app.connector.diagnose())
    shown = [each for each in diagnosis.findings if not quiet or each.level != "ok"]
    screen = session.screen
    if screen.structured:
        screen.document(msgspec.structs.replace(diagnosis, findings=shown))
    else:
        if shown:
            screen.listing(
                shown, "", ("check", "", "found"),
                ((each.check, Text(each.level, style=_STYLES[each.level]), each.says)
                 for each in shown),
                whole=["check"],
            )  # fmt: skip
        for each in shown:
            if each.advice and each.level != "ok":
                screen.say(f"{each.check}: {each.advice}")
        levels = [each.level for each in diagnosis.findings]
        screen.note(
            f"{levels.count('problem')} problems, {levels.count('warning')} warnings, "
            f"{levels.count('ok')} checks passed"
        )
    warned = strict and any(each.level == "warning" for each in diagnosis.findings)
    raise typer.Exit(0 if diagnosis.healthy and not warned else 1)
