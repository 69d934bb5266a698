"""Build the image without a registry: `make image`, or `python -m release.image --tag rota:0.1.0`.

1. Two small Debians are made by mmdebstrap from signed packages: one to build in, one to run in.
2. A draft of the release is built, and the packages that it pins are downloaded and checked by hash.
3. deploy/image/Containerfile is built on them by buildah; pip looks at no index.

With Docker or Podman and a registry none of this is needed: the Containerfile's own base is Debian's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from release.build import ROOT, Refused, make, version

_SUITE, _PYTHON = "bookworm", "3.11"
# As in Debian's slim images: nobody reads these in a container.
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*")
_RUN = "python3-minimal,libpython3-stdlib,tini,tzdata,ca-certificates"
_BUILD = "python3,python3-venv"
PROGRAMS = ("buildah", "mmdebstrap")


class Storage:
    """Where buildah and podman keep images: a folder of ours, by the driver that works everywhere."""

    def __init__(self, folder: Path) -> None:
        self.options = [
            "--root", str(folder / "images"), "--runroot", str(folder / "run"),
            "--storage-driver", "vfs",
        ]  # fmt: skip

    def buildah(self, *arguments: str) -> str:
        return _run("buildah", *self.options, *arguments).strip()


def check_programs() -> None:
    """Refuse a machine that can't build images, and say what it lacks."""
    for program in PROGRAMS:
        if shutil.which(program) is None:
            raise Refused(f"{program} is missing: apt-get install {' '.join(PROGRAMS)}")
    if os.geteuid() != 0:
        raise Refused("the bases are made as root: mmdebstrap and buildah with chroot isolation")


def build_image(storage: Storage, tag: str, folder: Path) -> dict[str, Any]:
    """Build the image into the storage. Returns its description, as buildah inspects it."""
    check_programs()
    for name, variant, packages in (("run", "essential", _RUN), ("build", "minbase", _BUILD)):
        _make_base(storage, folder / f"{name}.tar", f"localhost/rota-{name}", variant, packages)
    context, packages_dir = folder / "context", folder / "packages"
    make(context / "dist", draft=True)
    shutil.copytree(ROOT / "deploy/image", context / "deploy/image")
    [requirements] = (context / "dist").glob("*-requirements.txt")
    _run(
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
        "--python-version", _PYTHON, "--only-binary", ":all:", "--no-deps", "--require-hashes",
        "--requirement", str(requirements), "--dest", str(packages_dir),
    )  # fmt: skip
    storage.buildah(
        "build", "--format", "docker", "--isolation", "chroot",
        "--file", str(context / "deploy/image/Containerfile"),
        "--volume", f"{packages_dir}:/packages:ro", "--build-arg", "BASE=localhost/rota-run",
        "--build-arg", "BUILD_BASE=localhost/rota-build",
        "--build-arg", "PIP_OPTIONS=--no-index --find-links /packages", "--tag", tag, str(context),
    )  # fmt: skip
    described: dict[str, Any] = json.loads(storage.buildah("inspect", "--type", "image", tag))
    return described


def size_of(storage: Storage, tag: str) -> int:
    """Return the bytes of an image, unpacked."""
    [found] = json.loads(storage.buildah("images", "--json", tag))
    number, unit = found["size"].split()
    return int(float(number) * {"KB": 1e3, "MB": 1e6, "GB": 1e9}[unit.upper()])


def _make_base(storage: Storage, archive: Path, name: str, variant: str, packages: str) -> None:
    if storage.buildah("images", "--quiet", "--filter", f"reference={name}"):
        return  # made before, in this storage
    leaving_out = [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
    _run("mmdebstrap", f"--variant={variant}", f"--include={packages}", *leaving_out, _SUITE,
         str(archive))  # fmt: skip
    with _container(storage) as container:
        storage.buildah("add", "--quiet", container, str(archive), "/")
        storage.buildah("commit", "--quiet", container, name)
    archive.unlink()


@contextmanager
def _container(storage: Storage) -> Iterator[str]:
    container = storage.buildah("from", "scratch")
    try:
        yield container
    finally:
        storage.buildah("rm", container)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused(f"{' '.join(command[:1])} failed: {_shortened(done.stderr or done.stdout)}")
    return done.stdout


def _shortened(text: str) -> str:
    return text.strip()[-1500:]


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--storage", type=Path, help="a folder that keeps the bases for the next time"
    )
    parser.add_argument("--tag", default=f"localhost/rota:{version()}", help="the image's name")
    parser.add_argument(
        "--into", type=Path, default=ROOT / "dist/rota-image.tar", help="the archive to write"
    )
    options = parser.parse_args(given)
    with tempfile.TemporaryDirectory(prefix="rota-image-") as name:
        storage = Storage(options.storage or Path(name))
        try:
            build_image(storage, options.tag, Path(name))
            options.into.parent.mkdir(exist_ok=True)
            options.into.unlink(missing_ok=True)
            storage.buildah("push", options.tag, f"docker-archive:{options.into}:{options.tag}")
        except Refused as error:
            sys.exit(f"error: {error}")
        print(f"{size_of(storage, options.tag) / 1e6:.0f} MB  {options.tag}")
    print(f"Load it: docker load --input {options.into}")


if __name__ == "__main__":
    main()
