"""Workers by a broker and relays as commands: cli/run.py, cli/dispatched.py."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.places import ROTA, SUPPORT

SECRET = {"ROTA_DISPATCH_SECRET": "a secret of relays and workers that is long enough"}
NOWHERE = "redis://127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "more", "message"),
    [
        (["cli_app:app", "--dispatch", NOWHERE], {}, "need a secret that they share"),
        (["cli_app:app", "--dispatch", "http://x"], SECRET, "unknown scheme 'http'"),
        (["cli_app:app", "--dispatch", NOWHERE, "--queue", "a=2"], SECRET, "give the name only"),
        (["--dispatch", NOWHERE], SECRET, "a worker needs an app"),
        (["--role", "relay"], SECRET, "set ROTA_DISPATCH"),
    ],
)
def test_what_is_missing_is_said(
    arguments: list[str], more: dict[str, str], message: str, tmp_path: Path
):
    environment = {**os.environ, "ROTA_DATA_DIR": str(tmp_path / "none"), **more}
    done = subprocess.run(
        [ROTA, "start", *arguments], cwd=SUPPORT, env=environment, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "none").exists()


def test_a_worker_waits_for_its_broker_without_a_database_and_stops_when_asked(tmp_path: Path):
    environment = {
        **os.environ, **SECRET, "ROTA_DATA_DIR": str(tmp_path / "none"), "ROTA_DISPATCH": NOWHERE,
        "ROTA_PROCESSES": "1",
    }  # fmt: skip
    with subprocess.Popen(
        [ROTA, "start", "cli_app:app"], cwd=SUPPORT, env=environment, stderr=subprocess.PIPE, text=True,
    ) as worker:  # fmt: skip
        assert worker.stderr is not None
        for line in worker.stderr:
            if "the broker does not answer" in line:
                break
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0, worker.stderr.read()
    assert not (tmp_path / "none").exists()
