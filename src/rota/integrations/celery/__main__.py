"""`python -m rota.integrations.celery shop.celery:app`: what becomes of a Celery app."""

from __future__ import annotations

import sys

from rota.cli.loading import load_object
from rota.errors import ConfigError
from rota.integrations.celery.report import report


def main() -> int:
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m rota.integrations.celery MODULE:APP\n")
        return 2
    try:
        found = report(load_object(sys.argv[1]))
    except ConfigError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    for finding in found:
        sys.stdout.write(f"{finding.verdict:<8} {finding.subject}: {finding.message}\n")
    return int(any(finding.verdict == "by hand" for finding in found))


if __name__ == "__main__":
    sys.exit(main())
