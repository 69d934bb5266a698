"""Environments for the peers, made on demand in bench/.peers and kept: a virtual environment for each in
Python, node_modules for each in JavaScript. What can't be had is said, and nothing else fails for it.

python -m bench.peers.install [name ...]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.catalogue import BY_NAME, PEERS, Peer

ROOT = Path(__file__).parents[1] / ".peers"
_SECONDS = 900


class Missing(Exception):
    """Why a peer can't be measured here."""


def folder(peer: Peer) -> Path:
    return ROOT / peer.name


def interpreter(peer: Peer) -> list[str]:
    """What its adapter is run with."""
    if peer.kind == "rota":
        return [sys.executable]
    return [str(folder(peer) / ("node_modules/.bin/node" if peer.kind == "node" else "bin/python"))]


def program(peer: Peer) -> Path:
    """Its adapter. Node.js looks for packages beside the program, so that it is copied there."""
    if peer.kind != "node":
        return peer.adapter
    shutil.copy(peer.adapter.parents[1] / "common.mjs", ROOT / "common.mjs")
    return Path(shutil.copy(peer.adapter, folder(peer) / "adapter.mjs"))


def ensure(peer: Peer) -> None:
    """Installed in exactly these versions; or raises `Missing`."""
    if peer.store == "redis" and shutil.which("redis-server") is None:
        raise Missing("there is no redis-server here (Debian: apt-get install redis-server)")
    if peer.kind == "rota":
        return
    wanted = "\n".join(peer.packages) + "\n"
    mark = folder(peer) / "installed.txt"
    if mark.exists() and mark.read_text() == wanted:
        return
    print(f"installing {peer.title} ({', '.join(peer.packages)}) …", file=sys.stderr, flush=True)
    shutil.rmtree(folder(peer), ignore_errors=True)
    folder(peer).mkdir(parents=True)
    if peer.kind == "node":
        _install_node(peer)
    else:
        _install_python(peer)
    mark.write_text(wanted)


def _install_node(peer: Peer) -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise Missing("there is no Node.js with npm here (Debian: apt-get install nodejs npm)")
    # Node.js itself comes as a package too: the peers need a newer one than most systems have.
    (folder(peer) / "package.json").write_text('{"private": true, "type": "module"}\n')
    _run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *peer.packages], peer)


def _install_python(peer: Peer) -> None:
    python = _find_python(peer.python)
    _run([python, "-m", "venv", "--without-pip", "."], peer)
    # By the pip that is here: setting up one in each environment takes longer than all the rest.
    pip = [sys.executable, "-m", "pip", "--python", str(folder(peer) / "bin" / "python"), "install"]
    _run([*pip, "--quiet", "--disable-pip-version-check", *peer.packages], peer)


def _find_python(least: tuple[int, int]) -> str:
    """The same Python as Rota's, for it is the same for all; a newer one only where it is needed."""
    if sys.version_info >= least:
        return sys.executable
    for minor in range(least[1], least[1] + 5):
        found = shutil.which(f"python{least[0]}.{minor}") or _from_pyenv(f"{least[0]}.{minor}")
        if found:
            return found
    raise Missing(f"it needs Python {least[0]}.{least[1]} or newer, and none was found")


def _from_pyenv(version: str) -> str | None:
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = sorted(root.glob(f"{version}.*/bin/python3"))
    return str(found[-1]) if found else None


def _run(command: list[str], peer: Peer) -> None:
    try:
        subprocess.run(
            command, cwd=folder(peer), check=True, capture_output=True, text=True, timeout=_SECONDS
        )
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout or "").strip().splitlines()
        raise Missing(f"{command[0]} failed: {said[-1] if said else error.returncode}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"it can't be installed: {error}") from error


@contextmanager
def redis(place: Path) -> Iterator[tuple[str, int]]:
    """A Redis of our own on a socket, without persistence: the quickest it can be. (URL, process id)"""
    socket = place / "redis.sock"
    process = subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "",
         "--appendonly", "no", "--dir", str(place), "--loglevel", "warning"],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        end = time.monotonic() + 20
        while not socket.exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        yield str(socket), process.pid
    finally:
        process.terminate()
        process.wait(20)


def main() -> None:
    for name in sys.argv[1:] or [peer.name for peer in PEERS]:
        try:
            ensure(BY_NAME[name])
            print(f"{name}: ready")
        except Missing as error:
            print(f"{name}: {error}")


if __name__ == "__main__":
    main()
