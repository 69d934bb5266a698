"""python -m proof.checker FOLDER: prints the report; the exit code is 1 when a promise was not kept."""

from __future__ import annotations

import sys
from pathlib import Path

from proof.checker import check


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not (Path(arguments[0]) / "meta.json").is_file():
        print(
            "usage: python -m proof.checker FOLDER, with the folder of a history", file=sys.stderr
        )
        return 2
    report = check(Path(arguments[0]))
    print(report.text())
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
