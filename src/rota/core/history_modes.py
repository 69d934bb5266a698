"""The settings of what a queue keeps of its jobs that succeeded: all, failures, a sample, or none."""

from __future__ import annotations

import re

from rota.core.keys import shown
from rota.errors import ConfigError

ALL = "all"
_SAMPLE = re.compile(r"sample:([0-9]{1,2}([.][0-9]{1,4})?)%", re.ASCII)


def check_history(mode: object) -> None:
    """Refuse what is no setting `history` of a queue."""
    if isinstance(mode, str):
        if mode in (ALL, "failures", "none"):
            return
        sample = _SAMPLE.fullmatch(mode)
        if sample is not None and float(sample[1]) > 0:
            return
    raise ConfigError(
        f"history must be all, failures, none or a sample such as sample:1% (above 0%, below 100%),"
        f" not {shown(mode)}", field="history",
    )  # fmt: skip
