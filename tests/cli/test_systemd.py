"""The unit of systemd, and what `rota start` reports to it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.places import ROOT, ROTA, SUPPORT

UNIT = ROOT / "deploy/systemd/rota@.service"
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze"
)


def test_a_node_reports_that_it_is_up_alive_and_stopping(environ: dict[str, str], tmp_path: Path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(tmp_path / "notify"))
        line.settimeout(60)
        node = subprocess.Popen(
            [ROTA, "start", "cli_app:app", "--role", "scheduler"], cwd=SUPPORT,
            env={**os.environ, **environ, "NOTIFY_SOCKET": str(tmp_path / "notify"),
                 "WATCHDOG_USEC": "200000"},
        )  # fmt: skip
        try:
            assert line.recv(100) == b"READY=1"
            assert line.recv(100) == line.recv(100) == b"WATCHDOG=1"
            node.send_signal(signal.SIGTERM)
            while (said := line.recv(100)) == b"WATCHDOG=1":
                pass
            assert said == b"STOPPING=1"
            assert node.wait(60) == 0
        finally:
            node.kill()
            node.wait(60)


@needs_systemd
def test_systemd_understands_the_unit(tmp_path: Path):
    unit = tmp_path / "rota@worker.service"
    unit.write_text(UNIT.read_text().replace("/opt/rota/bin/rota", shutil.which("true") or ""))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    assert not [said for said in done.stderr.splitlines() if "rota@" in said], done.stderr


@needs_systemd
def test_the_unit_is_as_closed_as_the_guide_says():
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", UNIT],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    said = re.search(
        r"exposure level is \*\*([0-9.]+)\*\*", (ROOT / "docs/guide/systemd.md").read_text()
    )
    assert said
    assert float(found[1]) <= float(said[1])
