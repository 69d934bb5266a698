"""Resources of a node, for jobs that ask for some: as it was told, or else what its machine has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.config import Settings
from rota.core.resources import MEMORY, parse_node, parse_pairs
from rota.lib.machine import cpus, memory_bytes

_CPU = "cpu"


def resources_of_node(settings: Settings, given: Mapping[str, Any] | None = None) -> dict[str, int]:
    """Return a node's resources: what is `given`, then what the setting says, then what is found."""
    found: dict[str, Any] = {_CPU: cpus()}
    if (memory := memory_bytes()) > 0:
        found[MEMORY] = memory
    setting = settings.resources
    if isinstance(setting, str):
        setting = parse_pairs(part for part in setting.split(",") if part.strip())
    return parse_node({**found, **(setting or {}), **(given or {})})
