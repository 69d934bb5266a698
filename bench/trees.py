"""Older trees of this repository, to be measured beside this one."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

_TREE = Path(__file__).parents[1]


@contextlib.contextmanager
def worktree(commit: str) -> Iterator[Path | None]:
    """A worktree of a commit while it lasts, if this clone's history has it."""
    with tempfile.TemporaryDirectory(prefix="rota-before-") as folder:
        path = Path(folder) / "tree"
        git = ["git", "-C", str(_TREE), "worktree"]
        add = [*git, "add", "--detach", str(path), commit]
        made = subprocess.run(add, check=False, capture_output=True)
        try:
            yield path if made.returncode == 0 else None
        finally:
            remove = [*git, "remove", "--force", str(path)]
            subprocess.run(remove, check=False, capture_output=True)


def commit() -> str:
    """Return what is measured: this tree's commit, and a star where files have been changed."""
    told = ["git", "-C", str(_TREE), "describe", "--always", "--dirty=*", "--exclude=*"]
    return subprocess.run(told, check=False, capture_output=True, text=True).stdout.strip() or "?"
