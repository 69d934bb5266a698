"""Errors on the command line: one line for people, JSON for programs, and the exit codes.

Unexpected errors keep their traceback.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from rota.cli.output import Output, Screen
from rota.errors import RotaError
from rota.lib.text import is_text

# typer's own base of all complaints about a command line, under whichever name this release has it.
_Complaint: type[Exception] = typer.BadParameter.__mro__[2]


EXIT_CODES = {
    0: "The command succeeded.",
    1: "Rota refused the request, the job that was waited for failed, or a check found a problem.",
    2: "The command line is wrong: an unknown option, a missing argument, an invalid value.",
    130: "The command was interrupted with Ctrl-C.",
}


def _output_of(arguments: Sequence[str]) -> Output:
    """Find the output format before the command line is parsed, for errors in it."""
    formats: list[Output] = ["json", "yaml"]
    text = " ".join(arguments)
    for each in formats:
        if re.search(rf"(^| )(--output[= ]|-o ?){each}( |$)", text):
            return each
    return "json" if "--json" in arguments else "table"


class FaultGroup(TyperGroup):
    """The root command, which turns errors into messages and exit codes."""

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
        screen = Screen(_output_of(arguments))
        if (broken := next((one for one in arguments if not is_text(one)), None)) is not None:
            screen.fault("UsageError", f"the argument {broken!r:.100} is not text in UTF-8")
            sys.exit(2)
        try:
            code = super().main(
                arguments, prog_name, complete_var, False, windows_expand_args, **extra
            )
        except RotaError as error:
            details = {"code": error.code, "fields": dict(error.fields)}
            screen.fault(
                type(error).__name__, str(error),
                **{name: value for name, value in details.items() if value},
            )  # fmt: skip
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
    if context is not None and not screen.structured:
        message += f" (see: {context.command_path} --help)"
    screen.fault("UsageError", message)
    return int(error.exit_code)
