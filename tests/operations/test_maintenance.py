"""Maintenance windows: operations/maintenance.py, and what they keep from people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from rota import App
from rota.core.administration import Format
from rota.errors import ConfigError, NotFound
from tests.support.api import fail_jobs

EMAIL: Format = "email"


async def add_event(app: App, kind: str = "missed") -> None:
    async with (await app.store()).database.connection() as connection:
        await connection.execute(
            f"insert into {app.settings.schema}.event (namespace, kind, task, detail)"
            " values ($1, $2, 'greet', '{}')",
            app.settings.namespace, kind,
        )  # fmt: skip


async def told(app: App) -> int:
    return len(await app.jobs.list(queue="webhooks", task="rota.webhook"))


async def test_people_are_told_nothing_in_a_window_and_again_after_it(app: App) -> None:
    await app.webhooks.add("mailto:ops@example.com", form=EMAIL)
    await add_event(app)
    assert await told(app) == 1
    window = await app.maintenance.put("move", time="2h", note="to the new rack")
    assert window.open
    assert window.ends_at - window.starts_at == timedelta(hours=2)
    await add_event(app)
    assert await told(app) == 1
    assert len(await app.events.list(kind="missed")) == 2  # it is written down all the same
    assert (await app.maintenance.delete("move")).name == "move"
    await add_event(app)
    assert await told(app) == 2


async def test_programs_are_told_also_in_a_window(app: App) -> None:
    await app.webhooks.add("https://example.org/hook")
    await app.maintenance.put("move")
    await add_event(app)
    assert await told(app) == 1


async def test_a_window_covers_the_kinds_that_it_names(app: App) -> None:
    await app.webhooks.add("mailto:ops@example.com", form=EMAIL)
    await app.maintenance.put("move", kinds=["missed"])
    await add_event(app, "missed")
    assert await told(app) == 0
    await add_event(app, "node_dead")
    assert await told(app) == 1


async def test_a_window_that_is_planned_covers_nothing_yet(app: App) -> None:
    await app.webhooks.add("mailto:ops@example.com", form=EMAIL)
    start = await (await app.store()).now() + timedelta(hours=1)
    window = await app.maintenance.put("move", start=start, time="30m")
    assert (window.open, window.starts_at) == (False, start)
    await add_event(app)
    assert await told(app) == 1


async def test_windows_of_others_are_not_ours(app: App) -> None:
    await app.webhooks.add("mailto:ops@example.com", form=EMAIL)
    other = App(app.settings.replace(namespace="other"))
    await other.maintenance.put("move")
    await add_event(app)
    assert await told(app) == 1
    assert list(await app.maintenance.list()) == []
    await other.close()


async def test_alerts_are_silenced_by_a_window_that_covers_everything(app: App) -> None:
    job = await app.submit("greet", {})
    await fail_jobs(app, [str(job.id)], "no paper")
    before = await app.alerts.list(active=True)
    assert before
    await app.maintenance.put("nights", kinds=["missed"])
    assert await app.alerts.list(active=True) == before
    window = await app.maintenance.put("move", time="2h")
    assert list(await app.alerts.list(active=True)) == []
    silenced = await app.alerts.list()
    assert {one.key for one in silenced} == {one.key for one in before}
    assert {(one.active, one.silenced_until, one.note) for one in silenced} == {
        (False, window.ends_at, "maintenance move")
    }


async def test_a_window_is_changed_under_its_name(app: App) -> None:
    await app.maintenance.put("move", time="1h")
    changed = await app.maintenance.put("move", time="3h", kinds=["missed"])
    assert list(await app.maintenance.list()) == [changed]
    assert await app.maintenance.get("move") == changed


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"time": "0s"}, "for"), ({"time": "32d"}, "for"), ({"kinds": ["party"]}, "kinds"),
        ({"kinds": "missed"}, "kinds"), ({"note": "x" * 501}, "note"), ({"note": "\0"}, "note"),
        ({"start": datetime(2030, 1, 1)}, "start"),
        ({"start": datetime(2001, 1, 1, tzinfo=UTC)}, "start"),
        ({"start": datetime.max.replace(tzinfo=UTC)}, "start"),
        ({"start": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))}, "start"),
    ],
)  # fmt: skip
async def test_a_window_that_makes_no_sense_is_refused(
    app: App, given: dict[str, object], field: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        await app.maintenance.put("move", **given)  # type: ignore[arg-type]
    assert [*refused.value.fields] == [field]
    assert list(await app.maintenance.list()) == []


@pytest.mark.parametrize("time", ["soon", "-1h", "", float("nan"), -1.0])
async def test_what_is_no_duration_is_refused(app: App, time: str | float) -> None:
    with pytest.raises(ConfigError, match=r"^for: "):
        await app.maintenance.put("move", time=time)


async def test_a_window_that_is_not_there_is_named(app: App) -> None:
    with pytest.raises(NotFound, match="move"):
        await app.maintenance.delete("move")
