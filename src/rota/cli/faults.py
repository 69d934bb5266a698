"""How the command line says that something went wrong: one line for people, JSON for programs.

Exit codes: 1 when Rota refused, or what was waited for failed; 2 when the command itself makes no
sense; 130 after Ctrl-C. What nobody foresaw keeps its traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from rota.cli.output import Screen
from rota.errors import RotaError

# typer's own base of all complaints about a command line, under whichever name this release has it.
_Complaint: type[Exception] = typer.BadParameter.__mro__[2]


class FaultGroup(TyperGroup):
    """The outermost command: everything that ends badly comes through here."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        arguments = list(sys.argv[1:] if args is None else args)
        screen = Screen(as_json="--json" in arguments)
        try:
            code = super().main(
                arguments, prog_name, complete_var, False, windows_expand_args, **extra
            )
        except RotaError as error:
            screen.fault(type(error).__name__, str(error))
            code = 1
        except typer.Abort:
            screen.fault("Aborted", "aborted; nothing was changed")
            code = 1
        except _Complaint as error:
            code = _complain(screen, error)
        sys.exit(code if isinstance(code, int) else 0)


def _complain(screen: Screen, error: Any) -> int:
    context = getattr(error, "ctx", None)
    message = error.format_message()
    if context is not None and not screen.as_json:
        message += f" (see: {context.command_path} --help)"
    screen.fault("UsageError", message)
    return int(error.exit_code)
