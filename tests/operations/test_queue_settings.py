"""The settings of a queue are the same in all ways in: who adds one and forgets a way fails here."""

from __future__ import annotations

import inspect
from pathlib import Path

import msgspec
import pytest

from rota import App
from rota.cli.queues import set_queue
from rota.client.cluster import Queues as ClientQueues
from rota.model import QueueStatus
from rota.operations.queues import DEFAULTS, Queues, settings_of
from rota.server.api.queues import QueueSettings
from rota.server.dashboard import queue as queue_page

PAGE = Path(queue_page.__file__).parent / "templates" / "queue.html"
QUEUE = QueueStatus(
    namespace="default", name="mail", paused_at=None, ready=0, running=0, scheduled=0, lag=None
)


def options_of(function: object) -> set[str]:
    parameters = inspect.signature(function).parameters  # type: ignore[arg-type]
    return set(parameters) - {"self", "session", "name", "must_exist"}


def test_a_new_queue_has_the_defaults():
    assert settings_of(QUEUE) == DEFAULTS


@pytest.mark.parametrize(
    ("way", "known"),
    [
        ("Python", options_of(Queues.configure)),
        ("REST", {field.name for field in msgspec.structs.fields(QueueSettings)}),
        ("command line", options_of(set_queue)),
    ],
)
def test_each_way_takes_all_settings(way: str, known: set[str]):
    assert known == set(DEFAULTS), way


@pytest.mark.parametrize("setting", DEFAULTS)
def test_the_client_and_the_page_name_each_setting(setting: str):
    assert f"`{setting}`" in (ClientQueues.configure.__doc__ or "")
    assert f'name="{setting}"' in PAGE.read_text()


async def test_the_query_of_queues_fills_all_fields(app: App):
    await app.queues.set_max_run_time("mail", 60)
    store = await app.store()
    (row,) = await store.database.fetch("list_queues", "default", "mail")
    counted = {"exact"}  # what store/queue_counts.py adds
    fields = {field.name for field in msgspec.structs.fields(QueueStatus)}
    assert set(row.keys()) == fields - counted
