"""Paths of the repository and of the programs that tests start."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
# The folder that programs are started in when they load an app of a file there: `cli_app:app`.
SUPPORT = Path(__file__).parent
ROTA = Path(sys.executable).with_name("rota")
