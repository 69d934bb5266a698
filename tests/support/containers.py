"""Containers of the tests: podman, also where the machine is a container itself.

Protocol. Containers share the machine's network (the database is on its loopback), have a read-only root
and no capabilities. Where the control groups of the machine are not those that crun knows, podman is run
in a mount namespace in which they are, without making groups. A process holds that namespace while the
tests run, and everything ends with `close`.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from release.image import Storage

_HOLDER = (
    "mount --make-rprivate / && umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup "
    "&& echo ready && exec sleep infinity"
)


class Engine:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._holder: subprocess.Popen[str] | None = None
        self._names: list[str] = []

    def choose(self, image: str) -> None:
        """Find out how containers can be run here, or skip the test with the reason."""
        if shutil.which("podman") is None:
            pytest.skip("needs podman (apt-get install podman crun)")
        first = self._try(image)
        if first is None:
            return
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", _HOLDER], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            self.close()
            pytest.skip(f"podman can't run containers here: {first}")
        second = self._try(image)
        if second is not None:
            self.close()
            pytest.skip(f"podman can't run containers here: {second}")

    def _try(self, image: str) -> str | None:
        done = self._podman("run", "--rm", *self._options(), image, "version")
        return None if done.returncode == 0 else (done.stderr or done.stdout).strip()[-400:]

    def _options(self) -> list[str]:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return [
            "--network", "host", "--read-only", "--cap-drop", "all", "--no-healthcheck",
            "--security-opt", "no-new-privileges", "--log-driver", "k8s-file",
            # By default podman raises them, which it may not do in a container.
            "--ulimit", f"nofile={soft}:{hard}", "--ulimit", "nproc=2000:2000",
            *(["--cgroups", "disabled"] if self._holder else []),
        ]  # fmt: skip

    def _podman(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        inside = ["nsenter", "--mount", "--target", str(self._holder.pid)] if self._holder else []
        return subprocess.run(
            [*inside, "podman", *self._storage.options, *arguments],
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def podman(self, *arguments: str) -> str:
        done = self._podman(*arguments)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout.strip()

    def start(
        self, name: str, image: str, *command: str, app: Path, environ: dict[str, str]
    ) -> None:
        """Start a container in the background, with an application at /app."""
        given = [text for item in environ.items() for text in ("--env", "=".join(item))]
        self._names.append(name)
        self.podman("run", "--detach", "--name", name, *self._options(),
                    "--volume", f"{app}:/app:ro", *given, image, *command)  # fmt: skip

    def run(self, image: str, *command: str, environ: dict[str, str]) -> str:
        given = [text for item in environ.items() for text in ("--env", "=".join(item))]
        return self.podman("run", "--rm", *self._options(), *given, image, *command)

    def state(self, name: str) -> dict[str, Any]:
        [described] = json.loads(self.podman("inspect", name))
        state: dict[str, Any] = described["State"]
        return state

    def probe(self, name: str, path: str = "healthz") -> bool:
        done = self._podman(
            "exec", name, "/opt/rota/bin/python", "-I", "-S", "/opt/rota/probe.py", path
        )
        return done.returncode == 0

    def logs(self, name: str) -> str:
        done = self._podman("logs", name)
        return done.stdout + done.stderr

    def kill_init(self, name: str) -> None:
        """Kill the process 1 of a container, as the machine does that runs out of memory."""
        os.kill(int(self.state(name)["Pid"]), 9)

    def close(self) -> None:
        for name in self._names:
            self._podman("rm", "--force", "--time", "0", name)
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()
            assert self._holder.stdout is not None
            self._holder.stdout.close()
