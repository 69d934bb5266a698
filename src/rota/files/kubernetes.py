"""Read Kubernetes CronJobs from YAML as schedules of programs.

The program is that of the first container. Its image is not used: the program must be on the
workers that run it, which is why each image becomes a capability that a worker has to have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import yaml

from rota.commands import COMMAND_TASK
from rota.errors import ConfigError
from rota.files.foreign import Foreign, name_of

_OVERLAPS = {"Allow": "allow", "Forbid": "skip", "Replace": "kill"}
_VARIABLE = re.compile(r"\$\((\w+)\)")
Scalar: TypeAlias = str | int | float | bool  # which YAML makes of an argument without quotes


class _Variable(msgspec.Struct, rename="camel"):
    name: str
    value: Scalar | msgspec.UnsetType | None = msgspec.UNSET


class _Container(msgspec.Struct, rename="camel"):
    image: str = ""
    command: list[Scalar] | None = None
    args: list[Scalar] | None = None
    env: list[_Variable] | None = None
    env_from: Any = None
    working_dir: str | None = None


class _Pod(msgspec.Struct, rename="camel"):
    containers: list[_Container] | None = None


class _Template(msgspec.Struct, rename="camel"):
    spec: _Pod | None = None


class _Job(msgspec.Struct, rename="camel"):
    template: _Template | None = None
    backoff_limit: Annotated[int, msgspec.Meta(ge=0, le=1000)] | None = None
    active_deadline_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None


class _JobTemplate(msgspec.Struct, rename="camel"):
    spec: _Job | None = None


class _CronJobSpec(msgspec.Struct, rename="camel"):
    schedule: str = ""
    time_zone: str | None = None
    suspend: bool | None = None
    concurrency_policy: str | None = None
    starting_deadline_seconds: Any = None
    job_template: _JobTemplate | None = None


class _CronJob(msgspec.Struct, rename="camel"):
    """The parts of a CronJob that are read; others are passed over."""

    spec: _CronJobSpec | None = None


def read_cron_jobs(paths: Iterable[Path], tz: str) -> Foreign:
    """Read the CronJobs of files. `tz`: of those without a `timeZone`, the controller's own."""
    found = Foreign()
    for path in paths:
        try:
            documents = list(yaml.safe_load_all(path.read_text("utf-8")))
        except (yaml.YAMLError, ValueError) as error:
            found.refuse(str(path), f"is not YAML: {error}")
        except RecursionError:
            found.refuse(str(path), "is nested too deeply")
        except OSError as error:
            found.refuse(str(path), f"can't be read: {error}")
        else:
            for document in documents:
                for each in _items(found, path, document):
                    _read_one(found, path, each, tz)
    return found


def _items(found: Foreign, path: Path, document: Any) -> list[Any]:
    if isinstance(document, dict) and document.get("kind") == "List":
        items = document.get("items") or []
        if isinstance(items, list):
            return items
        found.refuse(str(path), "is a List whose items are no list")
        return []
    return [document]


def _read_one(found: Foreign, path: Path, document: Any, tz: str) -> None:
    if not isinstance(document, dict) or document.get("kind") != "CronJob":
        return
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    place = f"{path.name}: {name if isinstance(name, str) else 'a CronJob without a name'}"
    try:
        if not isinstance(name, str):
            raise ConfigError("metadata.name must be a text")
        cron_job = msgspec.convert(document, _CronJob)
        found.add(place, name_of(name), COMMAND_TASK, **_settings(found, place, cron_job, tz))
    except ConfigError as error:
        found.refuse(place, str(error))
    except msgspec.ValidationError as error:
        said, _, where = str(error).partition(" - at `$.")
        found.refuse(place, f"{where.rstrip('`') or 'the document'}: {said}")


def _settings(found: Foreign, place: str, cron_job: _CronJob, tz: str) -> dict[str, Any]:
    spec = cron_job.spec or _CronJobSpec()
    job = (spec.job_template or _JobTemplate()).spec or _Job()
    pod = (job.template or _Template()).spec or _Pod()
    containers = pod.containers or []
    if len(containers) != 1:
        raise ConfigError(f"it has {len(containers)} containers; only one can be imported")
    container = containers[0]
    argv = [*map(str, container.command or []), *map(str, container.args or [])]
    if not container.command:
        raise ConfigError(
            f"it has no command: what image {container.image!r} runs by itself isn't known here"
        )
    env = _environment(found, place, container)
    argv = [_VARIABLE.sub(lambda name: env.get(name[1], name[0]), each) for each in argv]
    image = container.image
    need = name_of("image:" + re.split(r"[@]", image)[0].rpartition("/")[2].replace("/", "."))
    found.warn(place, f"image {image} is not used: it needs a worker with --capability {need}")
    attempts = (6 if job.backoff_limit is None else job.backoff_limit) + 1
    options: dict[str, Any] = {"needs": [need], "max_attempts": attempts}
    if job.active_deadline_seconds is not None:
        options["timeout"] = float(job.active_deadline_seconds)
    payload: dict[str, Any] = {"argv": argv}
    if attempts > 1:
        payload["exit_codes"] = {"1": "retry"}
        found.warn(place, "backoffLimit: exit code 1 is tried again; name others in exit_codes")
    if env:
        payload["env"] = env
    if container.working_dir:
        payload["cwd"] = container.working_dir
    schedule, zone = spec.schedule, spec.time_zone or tz
    if schedule.startswith(("TZ=", "CRON_TZ=")):
        prefix, _, schedule = schedule.partition(" ")
        zone = prefix.partition("=")[2]
    if spec.starting_deadline_seconds is not None:
        found.warn(
            place, "startingDeadlineSeconds is left out: missed runs are skipped; see catch_up"
        )
    overlap = _OVERLAPS.get(spec.concurrency_policy or "Allow")
    if overlap is None:
        raise ConfigError(f"concurrencyPolicy {spec.concurrency_policy!r} is not known")
    return {
        "cron": schedule, "tz": zone, "overlap": overlap, "paused": bool(spec.suspend),
        "payload": payload, "options": options,
    }  # fmt: skip


def _environment(found: Foreign, place: str, container: _Container) -> dict[str, str]:
    env: dict[str, str] = {}
    for each in container.env or []:
        if each.value is msgspec.UNSET:
            found.warn(place, f"the variable {each.name} comes from the cluster, and is left out")
        else:
            env[each.name] = "" if each.value is None else str(each.value)
    if container.env_from:
        found.warn(place, "envFrom is left out: set these variables where the workers run")
    return env
