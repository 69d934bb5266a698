"""A network namespace for each node, joined to ours by a pair of virtual cables.

Protocol. A namespace's packet filter is its own: a partition is a rule inside it, and goes when it
goes. Names carry the process id of the run, so that the next run knows what a killed one left behind.
Needs root, iproute2, nftables and a kernel with the modules; `missing_for_namespaces` says what is not
to be had.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Literal

Cut = Literal["both", "out", "in", "reset"]

_PREFIX = "rotanem"
_RULES: dict[Cut, str] = {
    "both": "add rule inet cut out drop; add rule inet cut in drop",
    "out": "add rule inet cut out drop",
    "in": "add rule inet cut in drop",
    "reset": "add rule inet cut out meta l4proto tcp reject with tcp reset; add rule inet cut in drop",
}
_TABLE = """\
add table inet cut
delete table inet cut
add table inet cut
add chain inet cut in { type filter hook input priority 0; }
add chain inet cut out { type filter hook output priority 0; }
"""


class Namespace:
    """One namespace: `address` is the node's, `gateway` ours."""

    def __init__(self, number: int, subnet: int) -> None:
        self.name = f"{_PREFIX}-{os.getpid()}-{number}"
        self._cable = f"rn{os.getpid() % 0xFFFFFF:x}-{number}"
        self.gateway = f"10.231.{subnet}.{4 * number + 1}"
        self.address = f"10.231.{subnet}.{4 * number + 2}"
        self._cuts: list[Cut] = []

    def make(self) -> None:
        _run("ip", "netns", "add", self.name)
        _run("ip", "link", "add", self._cable, "type", "veth", "peer", "name", "eth0",
             "netns", self.name)  # fmt: skip
        _run("ip", "addr", "add", f"{self.gateway}/30", "dev", self._cable)
        _run("ip", "link", "set", self._cable, "up")
        _run("ip", "-n", self.name, "addr", "add", f"{self.address}/30", "dev", "eth0")
        _run("ip", "-n", self.name, "link", "set", "eth0", "up")
        _run("ip", "-n", self.name, "link", "set", "lo", "up")

    def remove(self) -> None:
        """Its end of the cable goes with it, and so ours. Doing it twice does no harm."""
        _run("ip", "netns", "delete", self.name, check=False)
        # The kernel takes its time with a namespace in which a connection is still dying.
        _run("ip", "link", "delete", self._cable, check=False)

    @property
    def prefix(self) -> list[str]:
        """To be put before a command that shall run inside."""
        return ["ip", "netns", "exec", self.name]

    def begin(self, cut: Cut) -> None:
        self._cuts.append(cut)
        self._apply()

    def end(self, cut: Cut) -> None:
        self._cuts.remove(cut)
        self._apply()

    def heal(self) -> None:
        self._cuts.clear()
        self._apply()

    def _apply(self) -> None:
        rules = "".join(_RULES[cut].replace("; add", "\nadd") + "\n" for cut in self._cuts)
        # Packets between a node and itself are not the network's.
        exempt = 'add rule inet cut out oif "lo" accept\nadd rule inet cut in iif "lo" accept\n'
        _run(*self.prefix, "nft", "-f", "-", stdin=_TABLE + (exempt + rules if rules else ""))


def make_namespaces(count: int) -> list[Namespace]:
    """As many as asked for; all or none."""
    subnet = _free_subnet()
    made = [Namespace(number, subnet) for number in range(count)]
    try:
        for namespace in made:
            namespace.make()
    except BaseException:
        for namespace in made:
            namespace.remove()
        raise
    return made


def missing_for_namespaces() -> str:
    """Why there can be no partitions on this machine; nothing if there can."""
    if os.geteuid() != 0:
        return "they need root"
    for program in ("ip", "nft"):
        if shutil.which(program, path=_path()) is None:
            return f"there is no program {program!r}"
    trial = Namespace(60, _free_subnet())
    try:
        trial.make()
        for cut in _RULES:
            trial.begin(cut)
    except RuntimeError as error:
        return str(error)
    finally:
        trial.remove()
    return ""


def remove_leftovers() -> list[str]:
    """The namespaces of runs whose process is gone."""
    removed = []
    folder = Path("/run/netns")
    for entry in sorted(folder.glob(f"{_PREFIX}-*")) if folder.is_dir() else ():
        found = re.fullmatch(rf"{_PREFIX}-(\d+)-\d+", entry.name)
        if found and not Path(f"/proc/{found[1]}").exists():
            _run("ip", "netns", "delete", entry.name, check=False)
            removed.append(entry.name)
    return removed


def _free_subnet() -> int:
    taken = _run("ip", "-br", "-4", "addr", check=False)
    start = os.getpid() % 250
    for subnet in (*range(start, 250), *range(start)):
        if f" 10.231.{subnet}." not in taken:
            return subnet
    raise RuntimeError("no private subnet is free")


def _path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def _run(*command: str, stdin: str = "", check: bool = True) -> str:
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, start_new_session=True,
        env={**os.environ, "PATH": _path()},
    )  # fmt: skip
    if check and done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError(f"{' '.join(command)}: {said[0] if said else done.returncode}")
    return done.stdout
