"""Schedules that code declares: they follow the newest release, and old nodes put nothing back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota import App
from rota.core.declarations import Declaration, decide, is_newer
from rota.errors import StoreUnavailable
from rota.lib import failpoints

Release = Callable[..., App]


@pytest.fixture
def release(make_app: Callable[..., App]) -> Release:
    """An app of one release: its schedules by name and cron expression."""

    def make(schedules: dict[str, str], number: str = "", app_name: str | None = "shop") -> App:
        app = make_app(release=number, app_name=app_name)
        for name, expression in schedules.items():

            @app.cron(expression, name=name)
            @app.task(name=f"task_{name}")
            async def run() -> None: ...

        return app

    return make


async def crons(app: App) -> dict[str, str]:
    listed = await app.schedules.list()
    return {one.name: one.readable.rule.expression for one in listed}  # type: ignore[union-attr]


async def test_what_the_code_no_longer_declares_is_deleted(
    release: Release, caplog: pytest.LogCaptureFixture
) -> None:
    await release({"a": "1 * * * *", "b": "2 * * * *"}).schedules.declare()
    newer = release({"b": "3 * * * *", "c": "4 * * * *"})
    await newer.schedule("by-hand", "task_b", every="1h")
    with caplog.at_level(logging.INFO, "rota.schedules"):
        assert await newer.schedules.declare() == "apply"
    by_hand = await newer.schedules.get("by-hand")
    assert by_hand.app is None
    assert not by_hand.is_orphan
    await newer.schedules.delete("by-hand")
    assert await crons(newer) == {"b": "3 * * * *", "c": "4 * * * *"}
    assert (
        "schedule a was deleted: the code of application shop no longer declares it" in caplog.text
    )
    assert "schedule b was updated, as the code of application shop declares it" in caplog.text
    assert "schedule c was created" in caplog.text


async def test_a_start_that_dies_leaves_the_set_that_was_in_force(release: Release) -> None:
    """Schedules of one set beside the note of another would stay so until the next release."""
    old = release({"a": "1 * * * *", "b": "2 * * * *"}, "1.0")
    await old.schedules.declare()
    newer = release({"b": "3 * * * *", "c": "4 * * * *"}, "2.0")
    dying = failpoints.armed_with("declare_schedules:before_commit=error")
    with pytest.raises(StoreUnavailable), dying:
        await newer.schedules.declare()
    assert await crons(old) == {"a": "1 * * * *", "b": "2 * * * *"}
    assert await newer.schedules.declare() == "apply"
    assert await crons(old) == {"b": "3 * * * *", "c": "4 * * * *"}


async def test_a_node_of_an_old_release_that_starts_late_puts_nothing_back(
    release: Release, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = {"a": "15 3 * * *", "b": "0 5 * * *"}, {"a": "30 4 * * *"}
    await release(old).schedules.declare()
    await release(new).schedules.declare()
    late = release(old)
    assert await late.schedules.declare() == "superseded"
    assert await crons(late) == new
    assert "rota schedules declare" in caplog.text
    # A rollback is said so.
    assert await late.schedules.declare(force=True) == "apply"
    assert await crons(late) == old
    assert await release(new).schedules.declare() == "superseded"
    assert await crons(late) == old


async def test_releases_are_compared_by_their_numbers(release: Release) -> None:
    nine, ten = {"a": "9 * * * *"}, {"a": "10 * * * *"}
    assert await release(ten, "1.10").schedules.declare() == "apply"
    app = release(nine, "1.9")  # never seen before, and yet older
    assert await app.schedules.declare() == "older_release"
    assert await crons(app) == ten
    assert await release(nine, "1.11").schedules.declare() == "apply"  # a change was taken back
    assert await crons(app) == nine


async def test_applications_leave_each_others_schedules_alone(release: Release) -> None:
    await release({"a": "1 * * * *"}).schedules.declare()
    other = release({"b": "2 * * * *"}, app_name="crm")
    await other.schedules.declare()
    assert await crons(other) == {"a": "1 * * * *", "b": "2 * * * *"}
    assert {one.name: one.app for one in await other.schedules.list()} == {"a": "shop", "b": "crm"}


async def test_an_application_that_declares_nothing_leaves_orphans(
    release: Release, caplog: pytest.LogCaptureFixture
) -> None:
    """More likely an import was forgotten."""
    await release({"a": "1 * * * *"}).schedules.declare()
    empty = release({})
    await empty.schedules.declare()
    (orphan,) = await empty.schedules.list()
    assert orphan.is_orphan
    assert "schedule a is an orphan" in caplog.text
    again = release({"a": "1 * * * *"}, "2")
    await again.schedules.declare()
    (one,) = await again.schedules.list()
    assert (one.app, one.is_orphan) == ("shop", False)


async def test_two_services_whose_modules_have_one_name_do_not_delete_each_others_schedules(
    release: Release, caplog: pytest.LogCaptureFixture
) -> None:
    first = release({"payroll": "1 * * * *", "dunning": "2 * * * *"}, app_name=None)
    await first.schedules.declare()
    other = release({"digest": "3 * * * *"}, app_name=None)
    assert await other.schedules.declare() == "other_application"
    assert await crons(other) == {"payroll": "1 * * * *", "dunning": "2 * * * *"}
    assert "(digest) were not stored" in caplog.text
    assert "Set app_name (ROTA_APP_NAME)" in caplog.text
    # A release that keeps one of the tasks is the same application, whatever its schedules are called.
    renamed = release({"payroll": "1 * * * *"}, app_name=None)
    assert await renamed.schedules.declare() == "apply"
    assert await crons(renamed) == {"payroll": "1 * * * *"}
    assert await other.schedules.declare(force=True) == "apply"
    assert await crons(other) == {"digest": "3 * * * *"}


def test_an_app_is_named_after_the_module_that_makes_it() -> None:
    assert App().name == __name__
    assert App(app_name="shop").name == "shop"


def known(*sets: tuple[str, str]) -> list[Declaration]:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    return [
        Declaration(digest, release, now - timedelta(days=n))
        for n, (digest, release) in enumerate(sets)
    ]


@pytest.mark.parametrize(
    ("digest", "release", "history", "verdict"),
    [
        ("x", "", [], "apply"),
        ("x", "", [("x", "")], "apply"),
        ("y", "", [("x", "")], "apply"),
        ("x", "", [("y", ""), ("x", "")], "superseded"),
        ("x", "3", [("y", "2"), ("x", "1")], "apply"),  # a newer release takes a change back
        ("z", "1", [("y", "2")], "older_release"),
        ("y", "2", [("x", "1"), ("y", "2")], "superseded"),  # after a rollback that was told
        ("y", "2026.11.2", [("x", "2026.9.30")], "apply"),
        ("y", "", [("x", "2")], "apply"),
        ("y", "1.10", [("x", "1.10rc1")], "apply"),
        ("y", "1.10rc1", [("x", "1.10")], "older_release"),
        # Commits' hashes have no order: a new set is put into force, an old one isn't put back.
        ("y", "1f3a9c07", [("x", "9b2e41d0")], "apply"),
        ("x", "9b2e41d0", [("y", "1f3a9c07"), ("x", "9b2e41d0")], "superseded"),
        ("x", "9b2e41d0", [("y", "1f3a9c07"), ("x", "8b2e41d0")], "superseded"),
        ("y", "1.0", [("x", "9b2e41d0")], "apply"),
    ],
)
def test_which_set_is_in_force(digest: str, release: str, history: Any, verdict: str) -> None:
    assert decide(digest, release, known(*history)) == verdict


def test_versions_have_an_order() -> None:
    ascending = [
        "0", "0.1", "v0.9", "1.0.dev3", "1.0a2", "1.0-beta.2", "1.0rc1", "1.0.rc2", "1.0.0", "1.0.post1",
        "1.0.1", "1.9", "shop-1.10", "1.10.2-14-gabc123", "2.0+build.7", "2026-11-02", "2026-11-16T03",
    ]  # fmt: skip
    for place, one in enumerate(ascending):
        assert [is_newer(one, other) for other in ascending] == [
            other_place < place for other_place in range(len(ascending))
        ], one
    for one, other in [
        ("1.10", "1.10.0"),
        ("v1", "1.0"),
        ("2.0+a", "2.0+b"),
        ("abc", "1"),
        ("2", "main"),
    ]:
        assert not is_newer(one, other)
        assert not is_newer(other, one)
