"""The processes of a run: ``python -m proof.nemesis.processes node scheduler`` (or client, operator)."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Whatever ends the driver ends us: nothing is left running."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _stamp(record: logging.LogRecord) -> bool:
    """By the history's clock: the wall clock may be wrong here."""
    record.at = time.monotonic()
    return True


def main() -> None:
    die_with_parent()
    kind, *arguments = sys.argv[1:]
    logging.basicConfig(
        level=logging.INFO,
        format=f"%(at).3f {os.environ['NEMESIS_NODE']} %(name)s %(message)s",
    )
    logging.getLogger().handlers[0].addFilter(_stamp)
    if kind == "client":
        from proof.nemesis.client import offer

        asyncio.run(offer())
    elif kind == "operator":
        from proof.nemesis.operating import operate

        asyncio.run(operate())
    else:
        from proof.nemesis.tasks import app
        from rota.node import Node

        asyncio.run(Node(app, roles=arguments).run())  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
