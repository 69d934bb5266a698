"""Nodes of the release before and of this one, side by side on the migrated schema."""

from __future__ import annotations

import os
import subprocess

import pytest

from proof.upgrade import main
from tests.support.places import ROOT

# Until there are releases: the first code with the schema in its present files.
_BEFORE_RELEASES = "dd9d6b6"


def previous_release() -> str | None:
    """The newest tag before this code, or the commit that stands for it; None: not in this clone."""
    git = ["git", "-C", str(ROOT)]
    tag = subprocess.run(
        [*git, "describe", "--tags", "--match", "v*", "--abbrev=0", "HEAD~1"],
        capture_output=True, text=True,
    )  # fmt: skip
    ref = os.environ.get("ROTA_PREVIOUS") or tag.stdout.strip() or _BEFORE_RELEASES
    known = subprocess.run([*git, "cat-file", "-e", f"{ref}^{{commit}}"], capture_output=True)
    return ref if known.returncode == 0 else None


@pytest.mark.proof
def test_a_rolling_upgrade_loses_nothing_and_runs_nothing_twice() -> None:
    ref = previous_release()
    if ref is None:
        pytest.skip("the release before isn't in this clone's history")
    main(ref)
