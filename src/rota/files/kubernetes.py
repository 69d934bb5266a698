"""Read Kubernetes CronJobs from YAML as schedules of programs.

The program is that of the first container. Its image is not used: the program must be on the
workers that run it, which is why each image becomes a capability that a worker has to have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from rota.commands import COMMAND_TASK
from rota.errors import ConfigError
from rota.files.foreign import Foreign, name_of

_OVERLAPS = {"Allow": "allow", "Forbid": "skip", "Replace": "kill"}
_VARIABLE = re.compile(r"\$\((\w+)\)")


def read_cron_jobs(paths: Iterable[Path], tz: str) -> Foreign:
    """Read the CronJobs of files. `tz`: of those without a `timeZone`, the controller's own."""
    found = Foreign()
    for path in paths:
        try:
            documents = list(yaml.safe_load_all(path.read_text("utf-8")))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            found.refuse(str(path), f"is not YAML: {error}")
            continue
        for document in documents:
            for each in _items(document):
                _read_one(found, path, each, tz)
    return found


def _items(document: Any) -> list[Any]:
    if isinstance(document, dict) and document.get("kind") == "List":
        return list(document.get("items") or [])
    return [document]


def _read_one(found: Foreign, path: Path, document: Any, tz: str) -> None:
    if not isinstance(document, dict) or document.get("kind") != "CronJob":
        return
    name = _at(document, "metadata", "name")
    place = f"{path.name}: {name}"
    try:
        found.add(place, name_of(str(name)), COMMAND_TASK, **_settings(found, place, document, tz))
    except ConfigError as error:
        found.refuse(place, str(error))


def _settings(found: Foreign, place: str, document: Mapping[str, Any], tz: str) -> dict[str, Any]:
    spec = _at(document, "spec") or {}
    job = _at(spec, "jobTemplate", "spec") or {}
    pod = _at(job, "template", "spec") or {}
    containers = pod.get("containers") or []
    if len(containers) != 1:
        raise ConfigError(f"it has {len(containers)} containers; only one can be imported")
    container = containers[0]
    argv = [*map(str, container.get("command") or []), *map(str, container.get("args") or [])]
    if not container.get("command"):
        raise ConfigError(
            f"it has no command: what image {container.get('image')!r} runs by itself isn't known here"
        )
    env = _environment(found, place, container)
    argv = [_VARIABLE.sub(lambda name: env.get(name[1], name[0]), each) for each in argv]
    image = str(container.get("image") or "")
    need = name_of("image:" + re.split(r"[@]", image)[0].rpartition("/")[2].replace("/", "."))
    found.warn(place, f"image {image} is not used: it needs a worker with --capability {need}")
    options: dict[str, Any] = {"needs": [need], "max_attempts": int(job.get("backoffLimit", 6)) + 1}
    if (limit := job.get("activeDeadlineSeconds")) is not None:
        options["timeout"] = float(limit)
    payload: dict[str, Any] = {"argv": argv}
    if options["max_attempts"] > 1:
        payload["exit_codes"] = {"1": "retry"}
        found.warn(place, "backoffLimit: exit code 1 is tried again; name others in exit_codes")
    if env:
        payload["env"] = env
    if folder := container.get("workingDir"):
        payload["cwd"] = folder
    schedule, zone = str(spec.get("schedule") or ""), spec.get("timeZone") or tz
    if schedule.startswith(("TZ=", "CRON_TZ=")):
        prefix, _, schedule = schedule.partition(" ")
        zone = prefix.partition("=")[2]
    if spec.get("startingDeadlineSeconds") is not None:
        found.warn(
            place, "startingDeadlineSeconds is left out: missed runs are skipped; see catch_up"
        )
    overlap = _OVERLAPS.get(spec.get("concurrencyPolicy") or "Allow")
    if overlap is None:
        raise ConfigError(f"concurrencyPolicy {spec['concurrencyPolicy']!r} is not known")
    return {
        "cron": schedule, "tz": zone, "overlap": overlap, "paused": bool(spec.get("suspend")),
        "payload": payload, "options": options,
    }  # fmt: skip


def _environment(found: Foreign, place: str, container: Mapping[str, Any]) -> dict[str, str]:
    env: dict[str, str] = {}
    for each in container.get("env") or []:
        if "value" in each:
            env[each["name"]] = str(each["value"])
        else:
            found.warn(
                place, f"the variable {each['name']} comes from the cluster, and is left out"
            )
    if container.get("envFrom"):
        found.warn(place, "envFrom is left out: set these variables where the workers run")
    return env


def _at(value: Any, *path: str) -> Any:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value
