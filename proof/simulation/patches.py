"""The few things that Rota takes from the real world, replaced for the length of a simulation.

The driver below `rota.store.database`; `time.monotonic` in every module; in `rota.lib.ids` the wall
clock (each process has its own, wrong one) and the randomness; the process's id and host name; and
threads, which would end at real moments: the heartbeat's runs on the loop. Everything else is what
production runs.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import socket
import sys
import time
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import rota.lib.ids
import rota.node
import rota.runtime.heartbeat
import rota.scheduler.firer
import rota.store.database
import rota.store.hosts
import rota.worker.role
from proof.simulation.driver import SimDriver
from proof.simulation.engine import DATABASE_MINUS_AT
from proof.simulation.gateway import Gateway
from proof.simulation.heartbeats import LoopHost
from proof.simulation.loop import PROCESS, Process, SimLoop

_outside = Process("outside")


def current() -> Process:
    return PROCESS.get() or _outside


class _IdCounter:
    """In place of the lock around the last id: each process has a last id of its own."""

    def __enter__(self) -> None:
        rota.lib.ids._last = current().last_id

    def __exit__(self, *_: object) -> None:
        current().last_id = rota.lib.ids._last


class Patches:
    def __init__(self, loop: SimLoop, gateway: Gateway) -> None:
        self._loop = loop
        self._gateway = gateway
        self._undo: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """For mutants too: until the simulation ends."""
        _check_parameters(getattr(owner, name), value)
        self._undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    @contextlib.contextmanager
    def applied(self) -> Iterator[Patches]:
        try:
            self._apply()
            yield self
        finally:
            self.undo()

    def undo(self) -> None:
        while self._undo:
            setattr(*self._undo.pop())

    def _apply(self) -> None:
        for module in (rota.store.database, rota.store.hosts):
            self.set(module, "asyncpg", SimDriver(self._gateway))
        self._patch_clocks()
        self._patch_entropy()
        for module in (rota.node, rota.scheduler.firer):
            self.set(module, "os", _Real(os, getpid=lambda: 1))
        self.set(rota.node, "socket", _Real(socket, gethostname=lambda: current().name))
        self.set(rota.runtime.heartbeat, "HeartbeatThread", LoopHost)
        self.set(rota.worker.role, "watch_overdue", lambda overdue: None)

    def _patch_clocks(self) -> None:
        monotonic = self._loop.time
        shim = _Real(time, monotonic=monotonic)
        for name, module in sorted(sys.modules.items()):
            if name == "rota" or name.startswith("rota."):
                for attribute, value in list(vars(module).items()):
                    if value is time.monotonic:
                        self.set(module, attribute, monotonic)
                    elif value is time:
                        self.set(module, attribute, shim)

    def _patch_entropy(self) -> None:
        def time_ns() -> int:
            wall = self._loop.time() + DATABASE_MINUS_AT + current().wall_offset
            return int(wall * 1e9)

        self.set(rota.lib.ids, "time", SimpleNamespace(time_ns=time_ns))
        urandom = SimpleNamespace(urandom=lambda count: current().random.randbytes(count))
        self.set(rota.lib.ids, "os", urandom)
        self.set(rota.lib.ids, "random", SimpleNamespace(random=lambda: current().random.random()))
        self.set(rota.lib.ids, "_lock", _IdCounter())
        self.set(rota.lib.ids, "_last", 0)
        _outside.random = Random(0)
        _outside.last_id = 0


def _check_parameters(old: Any, new: Any) -> None:
    """A function that can't be called as the one it replaces fails each time, which proves nothing: a
    mutant would be caught whatever it was meant to break."""
    if not (inspect.isfunction(old) and inspect.isfunction(new)):
        return
    known = inspect.signature(old).parameters.values()
    places = [p.name for p in known if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = [p.name for p in known if p.kind is p.KEYWORD_ONLY]
    try:
        inspect.signature(new).bind(*places, **dict.fromkeys(named))
    except TypeError as error:
        raise LookupError(f"what replaces {old.__qualname__} is out of date: {error}") from None


class _Real:
    """A module with a few names replaced."""

    def __init__(self, module: Any, **replaced: Any) -> None:
        self._module = module
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
