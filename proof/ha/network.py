"""Machines of a trial: network namespaces on one bridge, which are cut off from each other or from all.

Protocol. Names carry the process id of the run, so that the next run removes what a killed one left
behind. A cut is a table of the packet filter inside the machine's own namespace: it goes when the
namespace goes, and touches no other rule of this computer.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from proof.nemesis.network import Namespace, _free_subnet, _run, remove_leftovers

_BRIDGE = "rnb"
_CUT = """\
add table inet ha
delete table inet ha
add table inet ha
add chain inet ha in { type filter hook input priority 0; }
add chain inet ha out { type filter hook output priority 0; }
"""


class Machine(Namespace):
    """A namespace whose processes are one machine: killed, frozen or cut off together."""

    def __init__(self, number: int, subnet: int, bridge: str) -> None:
        super().__init__(number, subnet)
        self.gateway = f"10.231.{subnet}.1"
        self.address = f"10.231.{subnet}.{11 + number}"
        self._bridge = bridge

    def make(self) -> None:
        _run("ip", "netns", "add", self.name)
        _run("ip", "link", "add", self._cable, "type", "veth", "peer", "name", "eth0",
             "netns", self.name)  # fmt: skip
        _run("ip", "link", "set", self._cable, "master", self._bridge, "up")
        _run("ip", "-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        _run("ip", "-n", self.name, "link", "set", "eth0", "up")
        _run("ip", "-n", self.name, "link", "set", "lo", "up")

    # -- faults

    def cut_from(self, others: Sequence[str], *, sends: bool = False) -> None:
        """Drop every packet from and to these addresses. `sends`: what it sends itself arrives."""
        addresses = "{ " + ", ".join(others) + " }"
        rules = f"add rule inet ha in ip saddr {addresses} drop\n"
        if not sends:
            rules += f"add rule inet ha out ip daddr {addresses} drop\n"
        self._filter(rules)

    def join(self) -> None:
        self._filter("")

    def _filter(self, rules: str) -> None:
        _run(*self.prefix, "nft", "-f", "-", stdin=_CUT + rules)

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to every process in the namespace: until no new one appears, if it kills."""
        while pids := self.pids():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            if number != signal.SIGKILL:
                return

    def pids(self) -> list[int]:
        found = [int(pid) for pid in _run("ip", "netns", "pids", self.name, check=False).split()]
        return [pid for pid in found if not _is_zombie(pid)]


class Bridge:
    """The machines' network. We are its first address, from which clients come."""

    def __init__(self, count: int) -> None:
        remove_leftovers()
        _remove_old_bridges()
        subnet = _free_subnet()
        self.name = f"{_BRIDGE}{os.getpid()}"
        self.address = f"10.231.{subnet}.1"
        self.machines = [Machine(number, subnet, self.name) for number in range(count)]

    def make(self) -> None:
        _run("ip", "link", "add", self.name, "type", "bridge")
        _run("ip", "addr", "add", f"{self.address}/24", "dev", self.name)
        _run("ip", "link", "set", self.name, "up")
        for machine in self.machines:
            machine.make()

    def remove(self) -> None:
        for machine in self.machines:
            machine.signal_all(signal.SIGKILL)
            machine.remove()
        _run("ip", "link", "delete", self.name, check=False)


def _remove_old_bridges() -> None:
    for entry in Path("/sys/class/net").glob(f"{_BRIDGE}*"):
        found = re.fullmatch(rf"{_BRIDGE}(\d+)", entry.name)
        if found and not Path(f"/proc/{found[1]}").exists():
            _run("ip", "link", "delete", entry.name, check=False)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
