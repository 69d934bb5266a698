"""Environments for the peers, made on demand in bench/.peers and kept: a virtual environment for each in
Python, node_modules for each in JavaScript, a module for each in Go, a folder of jars for each in Java.
What can't be had is said, and nothing else fails for it.

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


def launch(peer: Peer) -> list[str]:
    """The first words of the command that runs its adapter."""
    home = folder(peer)
    if peer.kind == "go":
        return [str(home / "adapter")]
    if peer.kind == "java":
        path = f"{home / 'classes'}:{home / 'lib'}/*"
        return ["java", "-cp", path, f"-Dbench.version={peer.version}", "Adapter"]
    if peer.kind == "node":
        return [str(home / "node_modules/.bin/node"), str(_beside_packages(peer))]
    python = sys.executable if peer.kind == "rota" else str(home / "bin" / "python")
    return [python, str(peer.adapter)]


def _beside_packages(peer: Peer) -> Path:
    """Its adapter's copy: Node.js looks for packages beside the program."""
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
        _compile(peer)
        return
    print(f"installing {peer.title} ({', '.join(peer.packages)}) …", file=sys.stderr, flush=True)
    shutil.rmtree(folder(peer), ignore_errors=True)
    folder(peer).mkdir(parents=True)
    _INSTALLERS[peer.kind](peer)
    _compile(peer)
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


def _install_go(peer: Peer) -> None:
    if shutil.which("go") is None:
        raise Missing("there is no Go here (Debian: apt-get install golang)")
    _copy_sources(peer)
    _run(["go", "mod", "init", "adapter"], peer)
    _run(["go", "get", *peer.packages], peer)
    _run(["go", "mod", "tidy"], peer)


_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>{name}</artifactId><version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


def _install_java(peer: Peer) -> None:
    if shutil.which("mvn") is None or shutil.which("javac") is None:
        raise Missing(
            "there is no Java compiler with Maven here (Debian: apt-get install default-jdk maven)"
        )
    dependencies = []
    for package in peer.packages:
        group, artifact, version = package.replace("@", ":").split(":")
        dependencies.append(
            f"    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version></dependency>"
        )
    pom = _POM.format(name=peer.name, dependencies="\n".join(dependencies))
    (folder(peer) / "pom.xml").write_text(pom)
    _run(
        ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib",
         "-DincludeScope=runtime"], peer,
    )  # fmt: skip


_INSTALLERS = {
    "node": _install_node, "python": _install_python, "go": _install_go, "java": _install_java,
}  # fmt: skip


def _copy_sources(peer: Peer) -> None:
    """The adapter and what those of its language share, beside its packages."""
    for source in _sources(peer):
        shutil.copy(source, folder(peer) / source.name)


def _sources(peer: Peer) -> list[Path]:
    return [peer.adapter, peer.adapter.parents[1] / f"common{peer.adapter.suffix}"]


def _compile(peer: Peer) -> None:
    """Build an adapter in Go or Java, unless that was done since its sources were changed."""
    if peer.kind not in {"go", "java"}:
        return
    made = folder(peer) / ("adapter" if peer.kind == "go" else "classes/Adapter.class")
    if made.exists() and made.stat().st_mtime > max(s.stat().st_mtime for s in _sources(peer)):
        return
    _copy_sources(peer)
    if peer.kind == "go":
        _run(["go", "build", "-o", "adapter", "."], peer)
    else:
        _run(["javac", "-cp", "lib/*", "-d", "classes", "common.java", "adapter.java"], peer)


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
