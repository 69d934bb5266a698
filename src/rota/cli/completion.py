"""`rota completion`: shell completion scripts."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from typer._completion_shared import get_completion_script

from rota.cli.session import Session

COMPLETE_VARIABLE = "_ROTA_COMPLETE"


def completion(
    session: Session,
    shell: Annotated[
        Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")
    ],
) -> None:
    """Print the completion script of a shell.

    Load it in your shell's start file: `source <(rota completion bash)` in ~/.bashrc, the same with zsh
    in ~/.zshrc, or `rota completion fish | source` in ~/.config/fish/config.fish.
    """
    script = get_completion_script(prog_name="rota", complete_var=COMPLETE_VARIABLE, shell=shell)
    session.screen.answer({"shell": shell, "script": script}, script)
