"""Sources of schedules that are wrong or hostile: each entry is refused by itself, with the reason.

Tests of `rota.files.crontab`, `kubernetes`, `systemd_timers` and `celery_beat`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rota.files.celery_beat import read_beat
from rota.files.crontab import read_crontab
from rota.files.foreign import Foreign
from rota.files.kubernetes import read_cron_jobs
from rota.files.systemd_timers import read_timers

ENDLESS = "9" * 5000  # more digits than Python makes a number of
CONTAINERS = "spec.jobTemplate.spec.template.spec.containers"


def cron_job(path: str = "", value: Any = None) -> str:
    """A CronJob in YAML, with something else at a place."""
    pod = {"containers": [{"image": "x", "command": ["a"]}]}
    job: dict[str, Any] = {"template": {"spec": pod}}
    document: Any = {
        "kind": "CronJob", "metadata": {"name": "first"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job}},
    }  # fmt: skip
    if path:
        *above, last = path.split(".")
        at = document
        for key in above:
            at = at[int(key)] if key.isdigit() else at[key]
        at[last] = value
    return yaml.safe_dump(document)


def read_yaml(folder: Path, text: str) -> Foreign:
    """Read a file that also has a CronJob with which nothing is wrong."""
    (folder / "jobs.yaml").write_text(f"{text}\n---\n{cron_job('metadata.name', 'sound')}")
    return read_cron_jobs([folder / "jobs.yaml"], "UTC")


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("metadata", [5, "x", [], None]),
        ("metadata.name", [5, ["x"], {}, None, True]),
        ("spec", [5, "x", ["x"], None]),
        ("spec.schedule", [5, ["x"], {}, "", "x", ENDLESS]),
        ("spec.timeZone", [5, ["x"], {"a": 1}, True, 1.5, "Nowhere", "../../etc/passwd"]),
        ("spec.suspend", ["x", [1]]),
        ("spec.concurrencyPolicy", [[], ["x"], {"a": 1}, "x", 5]),
        ("spec.jobTemplate", [5, "x", ["x"]]),
        ("spec.jobTemplate.spec.backoffLimit", ["x", [], {}, float("nan"), -1, 10**30]),
        ("spec.jobTemplate.spec.activeDeadlineSeconds", ["x", [], -5, 0, float("nan")]),
        ("spec.jobTemplate.spec.template", [5, "x", ["x"]]),
        (CONTAINERS, [5, "x", ["x"], {"a": 1}, True, [[1]], [], None]),
        (f"{CONTAINERS}.0.image", [5, ["x"], {}]),
        (f"{CONTAINERS}.0.command", [5, True, {"a": 1}, [["a"]], [None], []]),
        (f"{CONTAINERS}.0.env", [5, "x", ["x"], [[1]], [{"value": 1}], [{"name": "a", "value": [1]}]]),
        (f"{CONTAINERS}.0.workingDir", [5, ["x"]]),
    ],
)  # fmt: skip
def test_a_cron_job_that_is_none_is_refused_alone(
    path: str, values: list[Any], tmp_path: Path
) -> None:
    for value in values:
        found = read_yaml(tmp_path, cron_job(path, value))
        assert [*found.schedules] == ["sound"], (path, value)
        [refused] = found.bad
        assert refused.message, (path, value)


def test_a_refusal_names_the_field(tmp_path: Path) -> None:
    found = read_yaml(tmp_path, cron_job("spec.jobTemplate.spec.backoffLimit", "x"))
    assert found.bad[0].place == "jobs.yaml: first"
    assert found.bad[0].message.startswith("spec.jobTemplate.spec.backoffLimit: Expected `int")


@pytest.mark.parametrize(
    "text",
    [
        "kind: List\nitems: 5", "kind: List\nitems: {a: 1}", "[", "\0", "!!python/object:os.system x",
        "[" * 3000 + "]" * 3000, "? [a]\n: b",
    ],
)  # fmt: skip
def test_what_is_no_yaml_of_kubernetes_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(text)
    found = read_cron_jobs([tmp_path / "jobs.yaml", tmp_path / "missing.yaml"], "UTC")
    assert [*found.schedules] == []
    assert len(found.bad) == 2


def test_aliases_do_not_multiply(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    start = cron_job(f"{CONTAINERS}.0.command", "COMMAND").replace("COMMAND", "*a59")
    found = read_yaml(tmp_path, "\n".join([*lines, start]))
    assert [*found.schedules] == ["sound"]
    assert "command" in found.bad[0].message


@pytest.mark.parametrize(
    "lines",
    [
        f"OnCalendar={ENDLESS}", f"OnCalendar=*:0/{ENDLESS}", f"OnCalendar=Mon *-*-1 0/{ENDLESS}:0",
        "OnCalendar=*-*-*-* 1:2", "OnCalendar=1:2:3:4", "OnCalendar=Mon..", "OnCalendar=Xyz 1:1",
        "OnCalendar=1:1 ../../etc/passwd", "OnCalendar=Mon..Fri *-13-40 1:1", "OnUnitActiveSec=0",
        f"OnUnitActiveSec={ENDLESS}", "OnUnitActiveSec=infinity", "OnCalendar=daily\nUnit=../x.service",
        "OnCalendar=daily\nUnit=..", "OnCalendar=daily\nUnit=a\0b",
        f"OnCalendar=daily\nRandomizedDelaySec={ENDLESS}", "",
    ],
)  # fmt: skip
def test_a_timer_that_is_none_is_refused_alone(lines: str, tmp_path: Path) -> None:
    for name, text in (("a", lines), ("sound", "OnCalendar=daily")):
        (tmp_path / f"{name}.timer").write_text(f"[Timer]\n{text}\n")
        (tmp_path / f"{name}.service").write_text("[Service]\nExecStart=/bin/true\n")
    found = read_timers(sorted(tmp_path.glob("*.timer")), "UTC")
    assert [*found.schedules] == ["sound"]
    assert [each.place for each in found.bad] == ["a.timer"]


@pytest.mark.parametrize(
    "service",
    [
        "[Service]\nExecStart=/bin/x 'y", "[Service]\nExecStart=/bin/x\nEnvironment='a",
        "[Service]\nExecStart=/bin/x \\", "[Service]\nExecStart=/bin/x %i", "", "[",
        "[Service]\nExecStart=/bin/x $HOME/data",
        "[Service]\nExecStart=/bin/x\nRuntimeMaxSec=x",
        f"[Service]\nExecStart=/bin/x\nRuntimeMaxSec={ENDLESS}",
    ],
)  # fmt: skip
def test_a_service_that_is_none_is_refused(service: str, tmp_path: Path) -> None:
    (tmp_path / "a.timer").write_text("[Timer]\nOnCalendar=daily\n")
    (tmp_path / "a.service").write_text(service)
    found = read_timers([tmp_path / "a.timer"], "UTC")
    assert [*found.schedules] == []
    assert [each.place for each in found.bad] == ["a.timer"]


@pytest.mark.parametrize(
    "line",
    [
        f"RANDOM_DELAY={ENDLESS}", f"{ENDLESS} * * * * x", f"*/{ENDLESS} * * * * x", "* * * * *",
        "@every x", "1-5-7 * * * * x", "1//2 * * * * x",
        "60 * * * * x", "* * * * 8 x", "*/0 * * * * x", "1,, * * * * x", "0x1 * * * * x", "@ x",
        "A = 'x' 'y'", "@daily",
    ],
)  # fmt: skip
def test_a_line_of_a_crontab_that_is_none_is_refused_alone(line: str) -> None:
    found = read_crontab(f"{line}\n0 3 * * * true\n")
    assert len(found.schedules) == 1
    assert [each.line for each in found.bad] == [1]


@pytest.mark.parametrize("zone", ["CRON_TZ=../../etc/passwd", "CRON_TZ=", "TZ=Nowhere"])
def test_entries_under_a_time_zone_that_is_none_are_not_read_in_another(zone: str) -> None:
    found = read_crontab(f"0 2 * * * a\n{zone}\n0 3 * * * b\nCRON_TZ=Europe/Paris\n0 4 * * * c\n")
    assert [spec.tz for spec in found.schedules.values()] == ["UTC", "Europe/Paris"]
    assert [each.line for each in found.bad] == [2, 3]


@pytest.mark.parametrize(
    "entry",
    [
        5, None, {}, {"task": "a"}, {"task": "a", "schedule": float("nan")},
        {"task": "a", "schedule": float("inf")}, {"task": "a", "schedule": -1},
        {"task": "a", "schedule": 5, "args": 5}, {"task": "a", "schedule": 5, "args": "ab"},
        {"task": "a", "schedule": 5, "kwargs": [1]}, {"task": "a", "schedule": 5, "options": [1]},
        {"task": "a", "schedule": 5, "options": {"queue": 5}}, {"task": "a", "schedule": object()},
        {"task": "a", "schedule": 5, "options": {"priority": "high"}},
        {"task": "a", "schedule": 5, "kwargs": {"a": object()}},
    ],
)  # fmt: skip
def test_an_entry_of_a_beat_schedule_that_is_none_is_refused_alone(entry: Any) -> None:
    sound = {"task": "a", "schedule": 60}
    found = read_beat({"first": entry, "sound": sound}, "UTC", {})
    assert [*found.schedules] == ["sound"]
    assert [each.place for each in found.bad] == ["beat_schedule['first']"]
