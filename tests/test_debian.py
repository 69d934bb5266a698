"""Rota in a Debian that has nothing but Python: installed from the wheel, and a job run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from release.build import make
from tests.support.places import ROOT

pytestmark = [
    pytest.mark.proof,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        shutil.which("mmdebstrap") is None or os.geteuid() != 0,
        reason="needs mmdebstrap (apt-get install mmdebstrap), and root for chroot",
    ),
]

APP = """
from rota import App
app = App()

@app.task
def double(n: int) -> int:
    return 2 * n
"""

INSTALL = """
python3 -m venv /opt/rota
/opt/rota/bin/pip install --quiet --no-index --find-links /root/packages rota
"""
RUN = """
cd /srv
/opt/rota/bin/rota dev --json > /tmp/log 2>&1 &
node=$!
for i in $(seq 600); do grep -q '"event":"up"' /tmp/log && break; sleep 0.1; done
/opt/rota/bin/rota jobs submit double '{"n": 21}' --wait; code=$?
kill $node; wait $node
exit $code
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("debian")
    made = subprocess.run(
        ["mmdebstrap", "--variant=minbase", "--include=python3,python3-venv,ca-certificates",
         "bookworm", folder / "root"], capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode != 0:
        pytest.skip(f"no Debian to be had: {made.stderr[-300:]}")
    dist = folder / "dist"
    make(dist, draft=True)
    [wheel] = dist.glob("rota-*.whl")
    # The packages are brought along: it has no network. Its Python is 3.11.
    packages = folder / "root/root/packages"
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
         "--python-version", "3.11", "--only-binary", ":all:", "--dest", packages,
         "--constraint", ROOT / "requirements/all.txt", wheel], check=True,
    )  # fmt: skip
    (folder / "root/srv/app.py").write_text(APP)
    return folder / "root"


def chroot(root: Path, script: str) -> subprocess.CompletedProcess[str]:
    # In namespaces of its own: what it starts ends with it, and sees its own processes.
    return subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--mount-proc=" + str(root / "proc"),
         "chroot", root, "/bin/sh", "-c", f"mount -t tmpfs none /dev/shm 2>/dev/null; {script}"],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_bare_debian_runs_a_job_in_two_commands(root: Path):
    done = chroot(root, INSTALL)
    assert done.returncode == 0, done.stderr
    done = chroot(root, RUN)
    assert (done.returncode, done.stdout.strip()) == (0, "42"), done.stderr + done.stdout
