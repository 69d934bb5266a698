"""Build rota-client: the wheel with `rota.client` alone, for programs that only speak to a server.

It is made of the files of the whole wheel that `rota.client` imports, so that both are the same code of
the same version, and asks for three packages. It installs the package `rota`, as the whole wheel does:
a program moves from one to the other without a change. Both in one environment own the same files,
which pip can't refuse: nodes refuse to start if their versions differ.

An extra can't do this: extras only add to what a package needs.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

NEEDS = ("httpx", "msgspec", "tzdata")
ROOT = Path(__file__).parent.parent
_OWN = {
    "Name": "rota-client",
    "Summary": "The client of Rota, a distributed job scheduler, without the rest of it.",
}
_EPOCH = (1980, 1, 1, 0, 0, 0)


def modules() -> set[str]:
    """Return the modules that `rota.client` needs: itself, and what they import, all over."""
    found: set[str] = set()
    waiting = {_name(path) for path in (ROOT / "src/rota/client").glob("*.py")}
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= {each for each in _imported(name) if each.startswith("rota")} - found
        if "." in name:
            waiting |= {name.rpartition(".")[0]} - found
    return found


def outside() -> set[str]:
    """Return the names of all other packages that these modules import, the standard library's too."""
    return {
        each.partition(".")[0]
        for name in modules()
        for each in _imported(name)
        if not each.startswith("rota")
    }


def _path(name: str) -> Path:
    place = ROOT / "src" / name.replace(".", "/")
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def _imported(name: str) -> Iterator[str]:
    for node in _run(ast.parse(_path(name).read_text("utf-8")).body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            for alias in node.names:  # `from rota.client import wire`
                inner = f"{node.module}.{alias.name}"
                if inner.startswith("rota.") and _path(inner).exists():
                    yield inner


def _run(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the nodes of these statements, but for those that only type checkers read."""
    for statement in body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            continue
        yield from ast.walk(statement)


def build_client(whole: Path, folder: Path) -> Path:
    """Make the wheel of the client from the whole one. The same wheel gives the same file."""
    version = whole.name.split("-")[1]
    named = f"rota_client-{version}"
    held = {str(_path(name).relative_to(ROOT / "src")) for name in modules()} | {"rota/py.typed"}
    with zipfile.ZipFile(whole) as archive:
        files = {name: archive.read(name) for name in sorted(held)}
        info = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(info).decode()
        licence = archive.read(info.replace("METADATA", "licenses/LICENSE"))
        wheel = archive.read(info.replace("METADATA", "WHEEL"))
    files[f"{named}.dist-info/METADATA"] = _metadata(metadata).encode()
    files[f"{named}.dist-info/WHEEL"] = wheel
    files[f"{named}.dist-info/licenses/LICENSE"] = licence
    record = f"{named}.dist-info/RECORD"
    lines = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    made = folder / f"{named}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return made


def _metadata(whole: str) -> str:
    """Return the metadata of the whole wheel with another name, text, and what the client needs."""
    head = whole.partition("\n\n")[0]
    kept = []
    for line in head.splitlines():
        key, _, value = line.partition(": ")
        if key == "Requires-Dist" and re.split(r"[<>=!;\[ ]", value)[0] not in NEEDS:
            continue
        if key == "Provides-Extra" or "extra ==" in value or "extra=" in value:
            continue
        kept.append(f"{key}: {_OWN[key]}" if key in _OWN else line)
    text = (
        "The client of [Rota](https://pypi.org/project/rota/): `from rota.client import Client`, for "
        "programs that submit jobs to a Rota server over HTTP. It brings no PostgreSQL driver and no "
        "server. `pip install rota` has it, too: install one of the two."
    )
    return "\n".join([*kept, "", text, ""])


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
