"""`rota schedules import`: Celery Beat, django-celery-beat, APScheduler, Kubernetes and systemd."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from rota import App
from rota.errors import ConfigError
from rota.files.apscheduler_jobs import read_jobs
from rota.files.foreign import expand, rule_of
from rota.files.kubernetes import read_cron_jobs
from rota.files.systemd_timers import calendar_rule, read_timers, seconds_of
from tests.support.command_line import Answer, run
from tests.support.places import EXAMPLES


def bring(*arguments: str, code: int = 0) -> Answer:
    answer = run("schedules", "import", *arguments, "--yes", "--json")
    assert answer.code == code, answer.err
    return answer


def schedules() -> dict[str, Any]:
    """The schedules that are stored, by name."""

    async def ask() -> dict[str, Any]:
        async with App() as app:
            return {status.name: status.spec for status in await app.schedules.list()}

    return asyncio.run(ask())


def test_the_beat_schedule_of_a_celery_app(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES / "from_celery" / "before")
    arguments = ("mailroom.celery:app", "--from", "celery")
    done = bring(*arguments)
    assert {change["action"] for change in done.json["changes"]} == {"create"}
    stored = schedules()
    assert stored["ping"].payload == {"a": 2, "b": 3}  # named by the function's signature
    assert stored["first-of-the-month"].options == {"queue": "billing", "priority": 5}
    assert stored["report-every-morning"].tz == "Europe/Berlin"
    again = bring(*arguments)
    assert {change["action"] for change in again.json["changes"]} == {"unchanged"}


def test_the_tables_of_django_celery_beat(
    environ: dict[str, str], database_url: str, tmp_path: Path
) -> None:
    """Made by its own migrations and models, in a database of their own."""
    name = f"beat_{tmp_path.name.replace('-', '_')[-20:]}"
    connection = psycopg.connect(database_url, autocommit=True)
    connection.execute(f"drop database if exists {name}")
    connection.execute(f"create database {name}")
    url = urlsplit(database_url)._replace(path=f"/{name}").geturl()
    try:
        _fill_beat_tables(tmp_path, url)
        refused = bring(url, "--from", "django-celery-beat", code=1)
        assert [each["place"] for each in refused.json["bad"]] == [
            "periodic task 'at noon once'", "periodic task 'by position'", "periodic task 'sunset'"
        ]  # fmt: skip
        assert schedules() == {}
        bring(url, "--from", "django-celery-beat", "--skip-bad")
        stored = schedules()
        assert sorted(stored) == ["every-5-minutes", "mornings", "paused"]
        assert stored["every-5-minutes"].payload == {"n": 1}
        assert (stored["mornings"].tz, stored["mornings"].options) == (
            "Europe/Paris", {"queue": "mail"}
        )  # fmt: skip
        assert stored["paused"].paused
    finally:
        connection.execute(f"drop database {name} with (force)")
        connection.close()


def _fill_beat_tables(folder: Path, url: str) -> None:
    (folder / "fill.py").write_text(dedent(f"""
        import django, psycopg
        from django.conf import settings
        parts = psycopg.conninfo.conninfo_to_dict({url!r})
        settings.configure(
            SECRET_KEY="x", USE_TZ=True, INSTALLED_APPS=["django_celery_beat"],
            DATABASES={{"default": {{"ENGINE": "django.db.backends.postgresql",
                "NAME": parts["dbname"], "USER": parts.get("user", ""), "HOST": parts.get("host", ""),
                "PASSWORD": parts.get("password", ""), "PORT": parts.get("port", "")}}}})
        django.setup()
        from django.core.management import call_command
        from django.utils import timezone
        call_command("migrate", verbosity=0)
        from django_celery_beat.models import (
            ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule)
        five = IntervalSchedule.objects.create(every=5, period="minutes")
        seven = CrontabSchedule.objects.create(
            minute="0", hour="7", day_of_week="mon-fri", timezone="Europe/Paris")
        sun = SolarSchedule.objects.create(event="sunset", latitude=48, longitude=2)
        noon = ClockedSchedule.objects.create(clocked_time=timezone.now())
        make = PeriodicTask.objects.create
        make(name="every 5 minutes", task="shop.ping", interval=five, kwargs='{{"n": 1}}')
        make(name="mornings", task="shop.mail", crontab=seven, queue="mail")
        make(name="paused", task="shop.mail", interval=five, enabled=False)
        make(name="by position", task="shop.add", interval=five, args="[1, 2]")
        make(name="sunset", task="shop.dim", solar=sun)
        make(name="at noon once", task="shop.ring", clocked=noon, one_off=True)
    """))  # fmt: skip
    subprocess.run([sys.executable, "fill.py"], cwd=folder, check=True, timeout=60)


def test_a_live_scheduler_of_apscheduler(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clockwork.py").write_text(
        dedent("""
        from apscheduler.schedulers.background import BackgroundScheduler

        def report(day, kind="short"): ...
        def ping(): ...

        scheduler = BackgroundScheduler(timezone="Europe/Rome")
        scheduler.add_job(report, "cron", id="weekdays", day_of_week="0-4", hour=8, args=["today"])
        scheduler.add_job(report, "cron", id="second friday", day="2nd fri", hour=9, args=["x", "long"])
        scheduler.add_job(report, "cron", id="both", day="13", day_of_week="4", hour=0, args=["x"])
        scheduler.add_job(ping, "interval", id="often", seconds=90, max_instances=3)
        scheduler.add_job(ping, "date", id="once", run_date="2030-01-01")
        scheduler.start(paused=True)
    """)
    )
    monkeypatch.chdir(tmp_path)
    done = bring("clockwork:scheduler", "--from", "apscheduler",
                          "--skip-bad")  # fmt: skip
    assert [each["place"] for each in done.json["bad"]] == ["job 'once'"]
    stored = schedules()
    assert stored["weekdays"].rule.expression == "0 8 * * mon-fri"  # 0 is Monday there
    assert stored["weekdays"].payload == {"day": "today"}
    assert stored["second-friday"].rule.expression == "0 9 * * fri#2"
    assert "BYMONTHDAY=13;BYDAY=FR" in stored["both"].rule.text
    assert (stored["often"].max_running, stored["weekdays"].tz) == (3, "Europe/Rome")
    import clockwork  # type: ignore[import-not-found]

    clockwork.scheduler.shutdown()


def test_what_apscheduler_has_and_rota_has_not_is_said() -> None:
    from apscheduler.schedulers.background import BackgroundScheduler

    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.add_job(print, "cron", id="a", year=2030)
    scheduler.add_job(print, "cron", id="b", week=3)
    messages = [remark.message for remark in read_jobs(scheduler).bad]
    assert [word for word in ("year", "week") for message in messages if f"a {word} (" in message] == [
        "year", "week"
    ]  # fmt: skip


CRON_JOBS = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: backup}
spec:
  schedule: "0 3 * * *"
  timeZone: Europe/Oslo
  concurrencyPolicy: Forbid
  suspend: true
  jobTemplate:
    spec:
      backoffLimit: 2
      activeDeadlineSeconds: 600
      template:
        spec:
          containers:
            - name: main
              image: registry.example.com/tools/backup:1.2
              command: [/usr/bin/backup]
              args: ["--to", "$(TARGET)"]
              env:
                - {name: TARGET, value: s3}
                - {name: SECRET, valueFrom: {secretKeyRef: {name: a, key: b}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: default-command}
spec:
  schedule: "@daily"
  jobTemplate: {spec: {template: {spec: {containers: [{image: busybox}]}}}}
"""


def test_a_folder_of_cron_jobs(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(CRON_JOBS)
    (tmp_path / "broken.yml").write_text("a: [")
    done = bring(str(tmp_path), "--from", "kubernetes", "--skip-bad")  # fmt: skip
    assert len(done.json["bad"]) == 2  # no command, no YAML
    assert any("SECRET comes from the cluster" in each["message"] for each in done.json["warnings"])
    [spec] = schedules().values()
    assert (spec.name, spec.tz, spec.overlap, spec.paused) == (
        "backup",
        "Europe/Oslo",
        "skip",
        True,
    )
    assert spec.payload["argv"] == ["/usr/bin/backup", "--to", "s3"]
    assert spec.options == {"needs": ["image:backup:1.2"], "max_attempts": 3, "timeout": 600.0}


def test_several_containers_are_refused(tmp_path: Path) -> None:
    text = CRON_JOBS.replace(
        "            - name: main", "            - {image: side}\n            - name: main", 1
    )
    (tmp_path / "two.yaml").write_text(text)
    found = read_cron_jobs([tmp_path / "two.yaml"], "UTC")
    assert "2 containers" in found.bad[0].message


def test_systemd_timers_with_their_services(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "backup.timer").write_text(
        "[Timer]\nOnCalendar=Mon..Fri *-*-* 02:30:00 Europe/Kyiv\nPersistent=true\n"
        "RandomizedDelaySec=10min\n[Install]\nWantedBy=timers.target\n"
    )
    (tmp_path / "backup.service").write_text(
        "[Unit]\nDescription=Back everything up\n[Service]\nUser=backup\nExecStart=/bin/tar -czf \\\n"
        '  "/srv/my backup" /data\nEnvironment="LEVEL=9" A=b\nRuntimeMaxSec=2h\n'
    )
    (tmp_path / "lost.timer").write_text("[Timer]\nOnCalendar=daily\n")
    done = bring(str(tmp_path), "--from", "systemd", "--skip-bad")  # fmt: skip
    assert done.json["bad"][0]["message"] == "its service lost.service is not beside it"
    [spec] = schedules().values()
    assert (spec.rule.expression, spec.tz) == ("30 2 * * mon-fri", "Europe/Kyiv")
    assert spec.payload["argv"] == ["/bin/tar", "-czf", "/srv/my backup", "/data"]
    assert spec.payload["env"] == {"LEVEL": "9", "A": "b"}
    assert (spec.spread, spec.options, spec.description) == (
        600.0, {"timeout": 7200.0}, "Back everything up"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("daily", {"cron": "0 0 * * *"}),
        ("weekly", {"cron": "0 0 * * mon"}),
        ("quarterly", {"cron": "0 0 1 1,4,7,10 *"}),
        ("*:0/15", {"cron": "*/15 * * * *"}),
        ("Sat,Sun 12:00", {"cron": "0 12 * * sat,sun"}),
        ("*-*-* 06,18:00:30", {"cron": "30 0 6,18 * * *"}),
        ("Fri *-*-13 00:00", {
            "rrule": "FREQ=DAILY;BYMONTHDAY=13;BYDAY=FR;BYHOUR=0;BYMINUTE=0;BYSECOND=0"
        }),
    ],
)  # fmt: skip
def test_calendar_expressions_of_systemd(text: str, rule: dict[str, str]) -> None:
    assert calendar_rule(text, "UTC") == {**rule, "tz": "UTC"}


@pytest.mark.parametrize("text", ["2030-01-01", "*-*~01", "sometimes"])
def test_calendar_expressions_that_have_no_rule_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="OnCalendar="):
        calendar_rule(text, "UTC")


def test_durations_of_systemd() -> None:
    assert seconds_of("1h 30min") == 5400
    with pytest.raises(ConfigError, match="not a duration"):
        seconds_of("a while")
    assert read_timers([], "UTC").schedules == {}


def test_fields_stand_for_numbers() -> None:
    assert expand("*/20", 0, 59) == [0, 20, 40]
    assert expand("fri-mon", 0, 6, {"fri": 5, "mon": 1}) == [0, 1, 5, 6]
    assert rule_of("0", "0", "*/2", "*", "fri") == {"cron": "0 0 */2 * fri"}
    for wrong in ("70", "a", "1-", "*/0"):
        with pytest.raises(ConfigError):
            expand(wrong, 0, 59)
