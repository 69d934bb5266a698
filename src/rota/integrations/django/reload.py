"""Runs a command again when a file of the project changes, for development.

Protocol. This process only watches; the command runs in a process of its own, which is asked to stop
(its jobs get their grace) before the next one starts. A command that fails is started again with the
next change. Signals are passed on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

_SECONDS = 0.5  # between two looks
_SUFFIXES = (".py", ".html", ".env", ".toml")
_SKIPPED = {"node_modules", "__pycache__", "site-packages"}

Snapshot = dict[str, float]


def project_folders() -> list[Path]:
    """Return the folders of the installed apps that aren't installed packages, and this one."""
    from django.apps import apps

    paths = {Path(config.path).resolve() for config in apps.get_app_configs()} | {Path.cwd()}
    own = [path for path in paths if "site-packages" not in path.parts]
    return [path for path in own if not any(other in path.parents for other in own)]


def snapshot(folders: Iterable[Path]) -> Snapshot:
    """Return when each file was changed last."""
    found: Snapshot = {}
    for folder in folders:
        for place, inner, names in os.walk(folder):
            inner[:] = [n for n in inner if not n.startswith(".") and n not in _SKIPPED]
            for name in names:
                if name.endswith(_SUFFIXES):
                    path = os.path.join(place, name)
                    try:
                        found[path] = os.stat(path).st_mtime_ns
                    except OSError:
                        continue  # it went away meanwhile
    return found


class Reloader:
    """Keeps one process of the command up."""

    def __init__(self, command: Sequence[str], folders: Sequence[Path], say: Any) -> None:
        self._command = list(command)
        self._folders = folders
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None
        self._told: subprocess.Popen[bytes] | None = (
            None  # the process that the signal was passed on to
        )
        self._stopping: int | None = None  # the signal

    def run(self) -> int:
        """Run until a signal. Return the exit code of the last process."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        before = snapshot(self._folders)
        self._start()
        while self._stopping is None:
            time.sleep(_SECONDS)
            now = snapshot(self._folders)
            if now != before and self._stopping is None:
                changed = sorted(p for p in {*now, *before} if now.get(p) != before.get(p))
                self._say(f"{changed[0]} changed: starting again.")
                before = now
                self._end()
                self._start()
        return self._end()

    def _start(self) -> None:
        # A session of its own: Ctrl-C reaches this process alone, which passes it on.
        self._process = subprocess.Popen(self._command, start_new_session=True)  # noqa: S603

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        self._stopping = number
        self._pass_on()

    def _pass_on(self) -> None:
        process, number = self._process, self._stopping
        if number is not None and process is not None and process is not self._told:
            self._told = process
            if process.poll() is None:
                process.send_signal(number)

    def _end(self) -> int:
        assert self._process is not None
        self._pass_on()  # a signal that came while the process was being started has not reached it
        if self._process.poll() is None and self._stopping is None:
            self._process.terminate()
        return self._process.wait()


def reload_forever(arguments: Sequence[str], say: Any) -> int:
    """Run `manage.py` with these arguments, again after each change."""
    command = [sys.executable, *sys.argv[:1], *arguments]
    return Reloader(command, project_folders(), say).run()
