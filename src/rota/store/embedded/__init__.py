"""The PostgreSQL that Rota brings along, for when no ``ROTA_DATABASE_URL`` is given.

Protocol. Two lock files in the data folder say everything about who is here; both are flocks, which
the kernel drops when a process dies in whatever way, so there are no counts to go stale:

- ``start.lock`` is held exclusively while somebody opens or closes: one at a time decides.
- ``users.lock`` is held shared by every open handle, in this process or another.

Opening, under the start lock: find the server or start it, then join the users. Closing, under the
start lock: try to turn the own shared lock into an exclusive one. If that works nobody else is
here, and the server is stopped.

What happens if a process dies here: while opening, at worst a server that nobody uses yet, or a
leftover folder of an unfinished initdb, which the next opening cleans up. While open, the server
keeps running, and the next opening finds it. While closing, the server may be shutting down: the
next opening waits until it is gone and starts it again.
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from rota.errors import EmbeddedPostgresError
from rota.store.embedded.account import ADVICE
from rota.store.embedded.server import DATABASE, PORT, SUPERUSER, Server

__all__ = ["EmbeddedPostgres", "open_embedded"]

_log = logging.getLogger(__name__)


class EmbeddedPostgres:
    """A running embedded PostgreSQL, shared with every process that opened the same data folder.

    ``url`` works for asyncpg, psycopg and everything else that speaks libpq. It is a unix socket
    in a folder that only this user can enter; there is no TCP port and no password.
    """

    def __init__(self, server: Server, socket_dir: Path, users_fd: int) -> None:
        self.url = f"postgresql://{SUPERUSER}@/{DATABASE}?host={quote(str(socket_dir))}&port={PORT}"
        self._server = server
        self._users_fd: int | None = users_fd
        self._closing = threading.Lock()
        _open_handles.add(self)

    def close(self) -> None:
        """Leave. The last one to leave stops the server. Closing twice does nothing."""
        with self._closing:
            users_fd, self._users_fd = self._users_fd, None
            if users_fd is None:
                return
            _open_handles.discard(self)
            try:
                _leave(self._server, users_fd)
            finally:
                os.close(users_fd)

    def _abandon(self) -> None:
        """In a forked child: the parent's lock is not ours to keep alive, nor to release."""
        if self._users_fd is not None:
            os.close(self._users_fd)
        self._users_fd = None
        self._closing = threading.Lock()


_open_handles: set[EmbeddedPostgres] = set()


def open_embedded(data_dir: Path) -> EmbeddedPostgres:
    """Find the PostgreSQL of this data folder, or make and start it. Blocks until it answers."""
    try:
        # Root's server runs as another user, who must be able to pass through. An existing folder is
        # left as it is.
        mode = 0o711 if os.geteuid() == 0 else 0o700
        data_dir.mkdir(mode=mode, parents=True, exist_ok=True)
        server = Server(data_dir.resolve())
        with _start_lock(server.data_dir):
            users_fd = _open_lock_file(server.data_dir / "users.lock")
            try:
                socket_dir = server.ensure_running(is_unused=lambda: _is_alone(users_fd))
                fcntl.flock(users_fd, fcntl.LOCK_SH)
            except BaseException:
                os.close(users_fd)
                raise
            return EmbeddedPostgres(server, socket_dir, users_fd)
    except OSError as error:
        raise EmbeddedPostgresError(
            f"the embedded PostgreSQL in {data_dir} could not be started: {error}. {ADVICE}"
        ) from error


def _leave(server: Server, users_fd: int) -> None:
    try:
        with _start_lock(server.data_dir):
            if _is_alone(users_fd):
                server.stop()
            # Explicit, because a child between fork and exec still has this open for a moment.
            fcntl.flock(users_fd, fcntl.LOCK_UN)
    except FileNotFoundError:
        # The folder was deleted. A server without its postmaster.pid ends itself within a minute.
        _log.debug("%s is gone: nothing to stop", server.data_dir)
    except OSError as error:
        raise EmbeddedPostgresError(
            f"the embedded PostgreSQL in {server.data_dir} could not be left in order: {error}. "
            "It may still be running; the next process to use it will stop it."
        ) from error


def _is_alone(users_fd: int) -> bool:
    """Return whether no other handle is open. Call it under the start lock."""
    try:
        fcntl.flock(users_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _start_lock(data_dir: Path) -> Iterator[None]:
    fd = _open_lock_file(data_dir / "start.lock")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
        fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def _open_lock_file(path: Path) -> int:
    # Python opens with O_CLOEXEC: neither the server nor any other program we start inherits it.
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _close_all() -> None:
    for handle in list(_open_handles):
        try:
            handle.close()
        except EmbeddedPostgresError as error:
            _log.warning("%s", error)


def _abandon_all() -> None:
    for handle in _open_handles:
        handle._abandon()
    _open_handles.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_abandon_all)
