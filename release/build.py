"""Build a release into dist/: `make release`, or `python -m release.build --draft` for a trial.

1. The tree is clean, the version is dated in CHANGELOG.md, and no tag names it yet (not for a draft).
2. The sdist is built, and the wheel from the sdist: what it lacks, the wheel lacks.
3. The wheel has every file of src/rota, and nothing else; that of the client is made from it.
4. The SBOM (CycloneDX) names what an image is made of: the pins of requirements/production.txt.
5. SHA256SUMS names all of it.

The same commit gives the same files, byte by byte: times come from the commit. Nothing is uploaded and
nothing is tagged; the commands for that are printed. A run that is cut off leaves dist/ as it was: the
files are made in a folder beside it, which then takes its place.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from release.client import build_client

ROOT = Path(__file__).parent.parent
_PIN = re.compile(
    r"^([A-Za-z0-9._-]+)==([A-Za-z0-9.!+]+)((?: \\\n    --hash=sha256:[0-9a-f]{64})*)", re.MULTILINE
)


class Refused(Exception):
    """The release can't be made; the message says what to do."""


def version() -> str:
    text = (ROOT / "src/rota/__init__.py").read_text("utf-8")
    found = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    if found is None:
        raise Refused("src/rota/__init__.py has no __version__")
    return found[1]


def check_ready(number: str) -> None:
    """Refuse a tree that isn't committed, a version that isn't dated, and one that was released."""
    if _git("status", "--porcelain"):
        raise Refused("the tree has changes: commit them, or make a draft with --draft")
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    if not re.search(
        rf"^## {re.escape(number)} - \d{{4}}-\d{{2}}-\d{{2}}$", changelog, re.MULTILINE
    ):
        raise Refused(
            f"CHANGELOG.md has no line `## {number} - YYYY-MM-DD`: date the section of this version"
        )
    if _git("tag", "--list", f"v{number}"):
        raise Refused(f"v{number} is tagged already: raise __version__ in src/rota/__init__.py")


def build(folder: Path) -> tuple[Path, Path]:
    """Build the sdist, then the wheel from it. Returns both."""
    epoch = _git("log", "-1", "--format=%ct") or "1700000000"  # outside of a repository
    environ = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        check=True, env=environ, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    [sdist] = folder.glob("rota-*.tar.gz")
    [wheel] = folder.glob("rota-*.whl")
    return sdist, wheel


def check_contents(sdist: Path, wheel: Path) -> None:
    """Refuse packages that lack a file of src/rota: SQL, templates, static files, py.typed."""
    source = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src/rota").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    if source != inside:
        raise Refused(f"the wheel differs from src/rota: {', '.join(sorted(source ^ inside)[:5])}")
    with tarfile.open(sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    lacking = {f"src/{name}" for name in source} - names
    if lacking:
        raise Refused(f"the sdist lacks {', '.join(sorted(lacking)[:5])}")


def bill_of_materials(number: str, wheel: Path) -> dict[str, Any]:
    """Return the SBOM of an image: Rota, and every package that production.txt pins."""
    pins = _PIN.findall((ROOT / "requirements/production.txt").read_text("utf-8"))
    components = [
        {
            "type": "library", "name": name, "version": pinned,
            "purl": f"pkg:pypi/{_canonical(name)}@{pinned}", "bom-ref": _canonical(name),
            "hashes": [
                {"alg": "SHA-256", "content": digest}
                for digest in re.findall(r"sha256:([0-9a-f]{64})", hashes)
            ],
        }
        for name, pinned, hashes in pins
    ]  # fmt: skip
    rota = {
        "type": "application", "name": "rota", "version": number, "bom-ref": "rota",
        "purl": f"pkg:pypi/rota@{number}", "licenses": [{"license": {"id": "Apache-2.0"}}],
        "hashes": [{"alg": "SHA-256", "content": _digest(wheel)}],
    }  # fmt: skip
    direct = {_canonical(re.split(r"[<>=\[;! ]", line)[0]) for line in _dependencies()}
    pinned_names = {component["bom-ref"] for component in components}
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": rota},
        "components": components,
        "dependencies": [{"ref": "rota", "dependsOn": sorted(direct & pinned_names)}],
    }  # fmt: skip


def _dependencies() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    return [*project["dependencies"], *extras]


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def make(target: Path, *, draft: bool) -> list[Path]:
    """Make the files of a release in a folder. Returns them."""
    number = version()
    if not draft:
        check_ready(number)
    folder = target.with_name(f".{target.name}.new")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sdist, wheel = build(folder)
    check_contents(sdist, wheel)
    build_client(wheel, folder)
    bill = json.dumps(bill_of_materials(number, wheel), indent=1)
    (folder / f"rota-{number}.cdx.json").write_text(f"{bill}\n", "utf-8")
    shutil.copy(ROOT / "requirements/production.txt", folder / f"rota-{number}-requirements.txt")
    made = sorted(folder.iterdir())
    sums = "".join(f"{_digest(path)}  {path.name}\n" for path in made)
    (folder / "SHA256SUMS").write_text(sums, "utf-8")
    shutil.rmtree(target, ignore_errors=True)
    folder.replace(target)
    return sorted(target.iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--draft", action="store_true", help="build whatever is here, for a trial")
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="the folder to make")
    given = parser.parse_args()
    try:
        made = make(given.into.absolute(), draft=given.draft)
    except Refused as error:
        sys.exit(f"error: {error}")
    for path in made:
        print(f"{path.stat().st_size:>10,}  {path.name}")
    if not given.draft:
        number = version()
        print(f"Publish it: git tag -s v{number} -m v{number} && git push --tags && "
              "twine upload dist/*.whl dist/*.tar.gz")  # fmt: skip


if __name__ == "__main__":
    main()
