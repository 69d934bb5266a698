"""The client: the same verbs waited for and awaited, and what it does when answers are lost."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from rota.client import AsyncClient, Client, JobsRefused
from rota.client.exchanges import RetryPolicy, Sleep, fetch, send, with_retries
from rota.client.jobs import Jobs
from rota.client.streams import Parser, ServerEvent
from rota.client.transport import NoResponse, Request, Response
from rota.core.administration import Limits
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition, StepDefinition
from rota.errors import (
    AccessDenied,
    ConfigError,
    Conflict,
    DuplicateJob,
    InvalidArguments,
    KeyConflict,
    NotFound,
    RotaError,
    ServerUnavailable,
    TooManyRequests,
)
from tests.support.api import fail_jobs, log, tell
from tests.support.server_fixtures import LiveServer, serving

NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)


class Voice:
    """Either client, so that one test speaks for both: `await voice.say("jobs.get", id)`."""

    def __init__(self, client: Client | AsyncClient) -> None:
        self.client = client

    async def say(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        method: Any = self.client
        for name in verb.split("."):
            method = getattr(method, name)
        if isinstance(self.client, Client):
            return await asyncio.to_thread(_heard, method, args, kwargs)
        answer = method(*args, **kwargs)
        return [one async for one in answer] if inspect.isasyncgen(answer) else await answer

    async def close(self) -> None:
        if isinstance(self.client, Client):
            self.client.close()
        else:
            await self.client.close()


def _heard(method: Any, args: Any, kwargs: Any) -> Any:
    answer = method(*args, **kwargs)
    return list(answer) if inspect.isgenerator(answer) else answer


class Proxy:
    """Stands before the server: loses answers, answers by itself, or cuts every line."""

    def __init__(self, port: int) -> None:
        self.target: int | None = port
        self.lose = 0  # so many answers, after the server gave them
        self.says: list[bytes] = []  # instead of the server
        self.requests: list[bytes] = []
        self.answered = b""
        self._lines: set[asyncio.StreamWriter] = set()
        self.url = ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        for line in list(self._lines):
            line.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._lines.add(writer)
        behind: asyncio.StreamWriter | None = None
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, OSError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = 0
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                body = await reader.readexactly(length)
                self.requests.append(head + body)
                if self.says:
                    writer.write(self.says.pop(0))
                    continue
                if self.target is None:
                    break
                if behind is None:
                    answers, behind = await asyncio.open_connection("127.0.0.1", self.target)
                    self._lines.add(behind)
                    pumping = asyncio.create_task(self._pump(answers, writer))
                    pumping.add_done_callback(lambda task: task.exception())
                behind.write(head + body)
        for line in (writer, behind):
            if line is not None:
                self._lines.discard(line)
                line.close()

    async def _pump(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await answers.read(65_536):
                if self.lose:
                    self.lose -= 1
                    break
                writer.write(piece)
                await writer.drain()
                self.answered += piece
        writer.transport.abort()


def problem(status: int, code: str, **headers: str) -> bytes:
    body = msgspec.json.encode({"code": code, "detail": "not now", "status": status})
    said = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} No\r\nContent-Length: {len(body)}\r\n{said}\r\n".encode() + body


@pytest.fixture
async def proxy(server: LiveServer) -> AsyncIterator[Proxy]:
    async with Proxy(server.server.port).running() as proxy:
        yield proxy


@pytest.fixture(params=["blocking", "awaited"])
async def voice(request, server: LiveServer, proxy: Proxy, monkeypatch) -> AsyncIterator[Voice]:
    monkeypatch.setenv("ROTA_URL", proxy.url)
    monkeypatch.setenv("ROTA_TOKEN", await server.token("operator"))
    made = Client() if request.param == "blocking" else AsyncClient()
    voice = Voice(made)
    yield voice
    await voice.close()


async def stored(server: LiveServer) -> int:
    schema = server.app.settings.schema
    async with (await server.app.store()).database.connection() as c:
        return await c.fetchval(f"select count(*) from {schema}.job")


# -- the verbs


async def test_a_job_is_submitted_looked_at_and_steered(voice: Voice, server: LiveServer):
    done = await voice.say(
        "jobs.submit", "work", {"to": "Ada"}, delay=timedelta(hours=1), tags="urgent", needs=["gpu"]
    )
    assert (done.task, done.existed) == ("work", False)
    job = await voice.say("jobs.get", done.id)
    assert (job.payload, job.state, job.needs) == ({"to": "Ada"}, "scheduled", ("gpu",))
    assert (await voice.say("jobs.explain", done.id)).code == "not_due"
    assert (await voice.say("jobs.attempts", str(done.id))).items == []
    assert not (await voice.say("jobs.result", done.id, wait=0.2)).ended
    with pytest.raises(TimeoutError):
        await voice.say("jobs.wait", done.id, timeout=0.1)
    assert (await voice.say("jobs.cancel", done.id)).outcome == "cancelled"
    assert (await voice.say("jobs.wait", done.id)).state == "cancelled"
    with pytest.raises(Conflict, match="already cancelled") as caught:
        await voice.say("jobs.cancel", done.id)
    assert (caught.value.code, caught.value.status) == ("ended", 409)
    assert caught.value.request_id
    with pytest.raises(Conflict):
        await voice.say("jobs.retry", done.id)


async def test_a_failed_job_is_retried_or_discarded(voice: Voice, server: LiveServer):
    ids = [(await voice.say("jobs.submit", "work", {"n": n})).id for n in range(3)]
    await fail_jobs(server.app, [str(id) for id in ids])
    (group,) = await voice.say("dead.list")
    assert group.count == 3
    assert (await voice.say("dead.retry", group.fingerprint, dry_run=True)).matched == 3
    assert (await voice.say("jobs.retry", ids[0])).id == ids[0]
    assert (await voice.say("jobs.discard", ids[1])).id == ids[1]
    assert (await voice.say("jobs.retry_many", task="work")).changed == 1
    assert (await voice.say("jobs.cancel_many", task="work")).changed == 2
    with pytest.raises(NotFound):
        await voice.say("dead.discard", group.fingerprint)


async def test_lists_are_read_page_by_page(voice: Voice):
    summary = await voice.say(
        "jobs.submit_many", ({"task": "work", "payload": {"n": n}, "queue": "q"} for n in range(25))
    )
    assert (summary.stored, len(summary.ids), summary.errors) == (25, 25, [])
    found = await voice.say("jobs.list", queue="q", page_size=10)
    assert [job.id for job in found] == sorted(summary.ids, reverse=True)
    assert len(await voice.say("jobs.list", state="ready", limit=12, page_size=10)) == 12
    assert await voice.say("jobs.list", state=["failed", "running"]) == []
    assert (await voice.say("jobs.count", queue="q")).value == 25


async def test_workflows_and_runs_have_all_their_verbs(voice: Voice, server: LiveServer):
    steps = (
        StepDefinition(name="a", task="work", arguments={"n": {"$input": "n"}}),
        StepDefinition(name="b", task="work", arguments={"n": {"$step": "a"}}),
    )
    await server.app.workflows.put(Graph(Definition(name="flow", steps=steps)))
    assert [each.name for each in await voice.say("workflows.list")] == ["flow"]
    assert (await voice.say("workflows.get", "flow", version=1)).version == 1
    first = await voice.say("runs.start", "flow", {"n": 1}, key="one")
    again = await voice.say("runs.start", "flow", {"n": 1}, key="one", priority=3)
    assert (again.id, first.existed, again.existed) == (first.id, False, True)
    with pytest.raises(KeyConflict):
        await voice.say("runs.start", "flow", {"n": 2}, key="one")
    other = await voice.say("runs.start", "flow", {"n": 2})
    listed = await voice.say("runs.list", workflow="flow", state="running", page_size=1)
    assert {run.id for run in listed} == {first.id, other.id}
    run = first.id
    assert (await voice.say("runs.get", run)).input == {"n": 1}
    page = await voice.say("runs.steps", run, state="running")
    assert ([step.name for step in page.items], page.next) == (["a"], None)
    assert (await voice.say("runs.step", run, "b")).after == ("a",)
    assert (await voice.say("runs.explain", run, "b")).code == "waiting_for_steps"
    assert (await voice.say("runs.explain", run)).code == "no_worker"
    assert (await voice.say("runs.pause", run)).outcome == "paused"
    assert (await voice.say("runs.resume", run)).outcome == "resumed"
    assert await voice.say("runs.result", run) is None
    assert (await voice.say("runs.cancel", run)).id == run
    assert (await voice.say("runs.retry", run, "a")).outcome == "retried"
    for step in ("a", "b"):
        await voice.say("runs.cancel", run)
        assert (await voice.say("runs.skip", run, step, result=step)).outcome == "skipped"
    assert await voice.say("runs.result", run) == "b"
    with pytest.raises(NotFound):
        await voice.say("runs.get", uuid4())
    assert (await voice.say("workflows.retire", "flow")).retired_at is not None
    assert (await voice.say("workflows.restore", "flow")).retired_at is None


async def test_schedules_have_all_their_verbs(voice: Voice):
    made = await voice.say(
        "schedules.create", "news", "work", every=timedelta(hours=1), payload={"a": 1}
    )
    assert (made.name, made.spec.payload) == ("news", {"a": 1})
    with pytest.raises(Conflict) as caught:
        await voice.say("schedules.create", "news", "work", cron="@daily")
    assert caught.value.code == "exists"
    changed = await voice.say("schedules.put", "news", "work", cron="0 9 * * *", tz="Europe/Paris")
    assert changed.version > made.version
    with pytest.raises(Conflict) as caught:
        await voice.say("schedules.put", "news", "work", cron="@daily", only_version=made)
    assert caught.value.status == 412
    slashed = await voice.say("schedules.put", "a/b", "work", cron="@daily")
    assert (await voice.say("schedules.put", "a/b", "work", cron="@hourly")).id == slashed.id
    assert [one.name for one in await voice.say("schedules.list", page_size=1)] == ["a/b", "news"]
    assert (await voice.say("schedules.get", "a/b")).id == slashed.id
    assert (await voice.say("schedules.pause", "news", until=NOON)).paused_until == NOON
    assert (await voice.say("schedules.resume", "news")).paused_at is None
    triggered = await voice.say("schedules.trigger", "a/b")
    assert (await voice.say("jobs.get", triggered.job_id)).task == "work"
    assert len((await voice.say("schedules.preview", "news", count=3)).occurrences) == 3
    rule = await voice.say("schedules.preview_rule", cron="0 0 1 1 *", after=NOON)
    assert rule.occurrences[0].due_at == datetime(2028, 1, 1, tzinfo=UTC)
    past = datetime(2026, 1, 1, tzinfo=UTC)
    stretch = (past, past + timedelta(days=3))
    assert (await voice.say("schedules.backfill", "news", *stretch)).count == 3
    rows = await voice.say("schedules.occurrences", "news", first=past, end=stretch[1], page_size=2)
    assert len(rows) == 3
    assert (await voice.say("schedules.audit", "news")).clean
    assert isinstance((await voice.say("schedules.lint")).warnings, list)
    await voice.say("schedules.delete", "news")
    with pytest.raises(NotFound):
        await voice.say("schedules.delete", "news")


async def test_queues_nodes_events_and_oneself(voice: Voice, server: LiveServer):
    await voice.say("jobs.submit", "work", queue="mail")
    (queue,) = await voice.say("queues.list")
    assert (queue.name, queue.ready) == ("mail", 1)
    assert (await voice.say("queues.pause", "mail")).paused_at is not None
    assert (await voice.say("queues.resume", "mail")).paused_at is None
    assert (await voice.say("queues.set_max_run_time", "mail", 90)).max_run_time == 90
    assert (await voice.say("queues.get", "mail")).max_run_time == 90
    assert (await voice.say("queues.set_max_run_time", "mail", None)).max_run_time is None
    assert (await voice.say("queues.get", "mail")).name == "mail"
    assert (await voice.say("nodes.list")).shards == server.app.settings.shards
    with pytest.raises(NotFound):
        await voice.say("nodes.get", uuid4())
    for number in range(3):
        await tell(server, str(number))
    events = await voice.say("events.list", page_size=2)
    told = [event.task for event in events if event.kind != "task_unknown"]
    assert told == ["2", "1", "0"]
    assert (await voice.say("me")).role == "operator"


def test_a_bound_method_has_the_signature_and_help_text_of_its_definition():
    with Client() as client:
        assert list(inspect.signature(client.jobs.get).parameters) == ["id"]
        assert client.jobs.list.__doc__ == Jobs.__dict__["list"].__doc__
        assert "newest first" in (client.jobs.list.__doc__ or "")


# -- what is refused


async def test_errors_are_the_library_s_own(voice: Voice, server: LiveServer):
    with pytest.raises(NotFound) as caught:
        await voice.say("jobs.get", uuid4())
    assert (caught.value.code, caught.value.status) == ("not-found", 404)
    with pytest.raises(NotFound, match="UUID"):
        await voice.say("jobs.get", "no-uuid")
    with pytest.raises(InvalidArguments):
        await voice.say("jobs.submit", "work", {"bad": object()})
    with pytest.raises(RotaError) as caught:
        await voice.say("jobs.submit", "not a name")
    assert caught.value.code == "invalid"
    with pytest.raises(ConfigError):
        await voice.say("schedules.create", "x", "work", cron="nonsense")
    first = await voice.say("jobs.submit", "work", {"n": 1}, key='it\'s "me"')
    again = await voice.say("jobs.submit", "work", {"n": 1}, key='it\'s "me"')
    assert (again.id, again.existed) == (first.id, True)
    with pytest.raises(KeyConflict) as conflict:
        await voice.say("jobs.submit", "work", {"n": 2}, key='it\'s "me"')
    assert conflict.value.job_id == str(first.id)
    assert conflict.value.code == "key-conflict"


async def test_unique_jobs(voice: Voice):
    first = await voice.say("jobs.submit", "work", {"n": 1}, unique=timedelta(minutes=1))
    again = await voice.say("jobs.submit", "work", {"n": 1}, unique=60)
    assert (first.existed, again.id, again.existed) == (False, first.id, True)
    options = {"unique": "waiting", "unique_key": "k", "unique_conflict": "refuse"}
    found = await voice.say("jobs.submit", "work", {"n": 1}, **options)
    with pytest.raises(DuplicateJob, match="unique key 'k'") as caught:
        await voice.say("jobs.submit", "work", {"n": 1}, **options)
    assert (caught.value.job_id, caught.value.task) == (str(found.id), "work")
    debounced = {"task": "work", "payload": {"n": 2}, "debounce": timedelta(seconds=60)}
    summary = await voice.say("jobs.submit_many", [debounced, debounced])
    assert (summary.stored, summary.existed) == (1, 1)


async def test_a_token_that_is_not_good_is_refused_at_once(server: LiveServer):
    async with AsyncClient(server.url, "rota_wrong") as client:
        with pytest.raises(AccessDenied):
            await client.jobs.get(uuid4())
    async with AsyncClient(server.url, await server.token("viewer")) as client:
        with pytest.raises(AccessDenied) as caught:
            await client.jobs.submit("work")
        assert caught.value.status == 403


async def test_of_many_jobs_the_bad_ones_are_refused_alone(voice: Voice, server: LiveServer):
    jobs = [{"task": "work"}, {"task": "no name"}, {"task": "work", "key": "mine"}]
    with pytest.raises(JobsRefused) as caught:
        await voice.say("jobs.submit_many", jobs)
    summary = caught.value.summary
    assert (summary.stored, [error.line for error in summary.errors]) == (2, [2])
    assert [id is None for id in summary.ids] == [False, True, False]
    again = await voice.say("jobs.submit_many", jobs[1:], on_error="continue")
    assert (again.stored, again.existed, again.ids[1]) == (0, 1, summary.ids[2])
    with pytest.raises(JobsRefused) as caught:
        await voice.say("jobs.submit_many", [*jobs[1:], {"task": "after"}], on_error="stop")
    assert caught.value.summary.stored == 0
    assert await stored(server) == 2


def test_a_url_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="http"):
        Client("localhost:8400")
    with pytest.raises(ConfigError, match="timeout"):
        Client(timeout=0)


def test_what_a_server_can_not_be_told_is_refused():
    with pytest.raises(ConfigError, match="namespace 'é' is not a usable name"):
        Client(namespace="é")
    with pytest.raises(ConfigError, match="the token holds"):
        Client(token="rota_é")
    with pytest.raises(ConfigError, match="can't be read"):
        Client("http://[::1")
    # As it comes from a file, with a line break at its end.
    assert Client(token="rota_x\n")._connection.http.headers["Authorization"] == "Bearer rota_x"
    for text in ("\ud800", "x" * 10_000):
        with pytest.raises(ConfigError, match="can't be sent in a URL"):
            list(Client(token="rota_x").jobs.list(task=text))


async def test_nothing_that_was_given_is_left_out_silently(voice: Voice, server: LiveServer):
    for options in ({"delay": math.inf}, {"timeout": math.nan}, {"throttle": math.inf}):
        with pytest.raises(InvalidArguments, match="must be a finite number"):
            await voice.say("jobs.submit", "greet", {"name": "Ann"}, **options)
    for payload in ({"name": math.nan}, {"name": "Ann", "more": [{"deep": -math.inf}]}):
        with pytest.raises(InvalidArguments, match="NaN and infinity have no JSON form"):
            await voice.say("jobs.submit", "greet", payload)
    with pytest.raises(ConfigError, match="key"):
        await voice.say("jobs.submit", "greet", {"name": "Ann"}, key="")
    with pytest.raises(ConfigError, match="key"):
        await voice.say("runs.start", "flow", {}, key="")
    with pytest.raises(InvalidArguments, match="NaN and infinity have no JSON form"):
        await voice.say("runs.start", "flow", {"share": math.nan})
    assert await stored(server) == 0


# -- answers that are lost


async def test_a_submit_whose_answer_is_lost_stores_one_job(
    voice: Voice, server: LiveServer, proxy: Proxy
):
    proxy.lose = 2
    done = await voice.say("jobs.submit", "work", {"salary": 1000})
    assert not done.existed
    assert len(proxy.requests) == 3
    assert await stored(server) == 1
    assert (await voice.say("jobs.get", done.id)).payload == {"salary": 1000}


async def test_many_jobs_whose_answer_is_lost_are_stored_once(
    voice: Voice, server: LiveServer, proxy: Proxy
):
    proxy.lose = 1
    summary = await voice.say("jobs.submit_many", ({"task": "work"} for _ in range(2_100)))
    assert len(proxy.requests) == 3
    assert (summary.stored, summary.existed) == (2_100, 0)
    assert len(set(summary.ids)) == await stored(server) == 2_100


async def test_what_must_not_be_done_twice_is_not_asked_twice(
    voice: Voice, server: LiveServer, proxy: Proxy
):
    await voice.say("schedules.create", "pay", "work", cron="@yearly")
    proxy.requests.clear()
    proxy.lose = 1
    with pytest.raises(ServerUnavailable, match="may have taken effect") as caught:
        await voice.say("schedules.trigger", "pay")
    assert caught.value.in_doubt
    assert (len(proxy.requests), await stored(server)) == (1, 1)


async def test_a_deletion_whose_answer_is_lost_is_done(voice: Voice, proxy: Proxy):
    await voice.say("schedules.create", "pay", "work", cron="@yearly")
    proxy.lose = 1
    await voice.say("schedules.delete", "pay")
    assert await voice.say("schedules.list") == []


async def test_a_refusal_after_a_lost_answer_says_that_it_may_be_our_own_doing(
    voice: Voice, proxy: Proxy
):
    job = await voice.say("jobs.submit", "work")
    proxy.lose = 1
    with pytest.raises(Conflict) as caught:
        await voice.say("jobs.cancel", job.id)
    assert "the first time" in caught.value.__notes__[0]


async def test_a_busy_server_is_asked_again(voice: Voice, server: LiveServer, proxy: Proxy):
    proxy.says = [problem(429, "quota", **{"Retry-After": "0"}), problem(503, "unavailable")]
    await voice.say("jobs.submit", "work")
    await voice.say("schedules.create", "pay", "work", cron="@yearly")
    proxy.says = [problem(429, "quota", **{"Retry-After": "0"})]
    await voice.say("schedules.trigger", "pay")
    assert await stored(server) == 2
    proxy.says = [problem(503, "unavailable")]
    with pytest.raises(RotaError) as caught:
        await voice.say("schedules.trigger", "pay")
    assert caught.value.code == "unavailable"
    assert await stored(server) == 2


async def test_a_namespace_s_own_limit_is_waited_for(server: LiveServer):
    await server.context.quotas.store.put_namespace("default", Limits(submits_per_second=1.0))
    async with AsyncClient(server.url, await server.token("operator"), timeout=60) as client:
        for _ in range(3):
            await client.jobs.submit("work")
        assert (await client.jobs.submit_many([{"task": "work"}])).stored == 1
    assert await stored(server) == 4
    await server.context.quotas.store.put_namespace("default", Limits(max_jobs=4))
    server.context.quotas.forget()
    async with AsyncClient(server.url, await server.token("operator"), timeout=0.5) as client:
        with pytest.raises(TooManyRequests) as caught:
            await client.jobs.submit("work")
    assert caught.value.code == "quota"
    assert caught.value.retry_after


async def test_a_server_that_is_not_there_is_told_when_the_time_is_over():
    async with AsyncClient("http://127.0.0.1:9", "token", timeout=0.3) as client:
        with pytest.raises(ServerUnavailable) as caught:
            await client.jobs.submit("work")
    assert not caught.value.in_doubt


# -- streams


async def test_a_log_is_followed_across_a_restart_of_the_server(make_app):
    app = make_app(port=0)
    async with contextlib.AsyncExitStack() as stack:
        first = contextlib.AsyncExitStack()
        live = await first.enter_async_context(serving(app))
        proxy = await stack.enter_async_context(Proxy(live.server.port).running())
        client = await stack.enter_async_context(AsyncClient(proxy.url, await live.token()))
        job = await client.jobs.submit("work")
        id = str(job.id)
        await log(live, id, "one", "two")
        lines = client.jobs.logs(job.id, follow=True)
        assert [(await anext(lines)).text for _ in range(2)] == ["one", "two"]
        proxy.cut()  # in the middle, as by a kill
        proxy.target = None
        await first.aclose()
        waiting = asyncio.create_task(anext(lines))
        second = await stack.enter_async_context(serving(make_app(port=0)))
        await log(second, id, "three")
        proxy.target = second.server.port
        assert (await waiting).text == "three"
        resumed = [head for head in proxy.requests if b"last-event-id: 1-2" in head.lower()]
        assert resumed
        await client.jobs.cancel(job.id)
        assert [line.text async for line in lines] == []


async def test_a_log_is_followed_to_its_end(voice: Voice, server: LiveServer):
    job = await voice.say("jobs.submit", "work")
    await log(server, str(job.id), "one", "two")
    following = asyncio.create_task(voice.say("jobs.logs", job.id, follow=True))
    await voice.say("jobs.cancel", job.id)
    assert [line.text for line in await following] == ["one", "two"]
    assert [line.text for line in await voice.say("jobs.logs", job.id)] == ["one", "two"]
    with pytest.raises(NotFound):
        await voice.say("jobs.logs", uuid4(), follow=True)


async def test_events_before_the_first_cut_are_not_missed(server: LiveServer, proxy: Proxy):
    async with AsyncClient(proxy.url, await server.token()) as client:
        events = client.events.follow()
        waiting = asyncio.create_task(anext(events))
        async with asyncio.timeout(60):
            while b"\nid: " not in proxy.answered:  # where the stream begins
                await asyncio.sleep(0.01)
        proxy.cut()
        await tell(server, "while we were away")
        assert (await waiting).task == "while we were away"
        await tell(server, "next")
        assert (await anext(events)).task == "next"
        await events.aclose()


# -- without a server


def drive(exchange, received: list[Response | NoResponse]):
    """Perform an exchange with these responses; return its steps and its result."""
    attempts = with_retries(exchange, RetryPolicy())
    steps: list[Request | Sleep] = []
    step = next(attempts)
    while True:
        steps.append(step)
        try:
            step = attempts.send(received.pop(0) if isinstance(step, Request) else None)
        except StopIteration as end:
            return steps, end.value


def respond(status: int, body: bytes = b"{}", **headers: str) -> Response:
    return Response(status=status, headers=headers, body=body)


def test_the_server_s_word_on_when_to_come_back_is_respected():
    busy = respond(429, **{"retry-after": "7"})
    steps, done = drive(fetch("/x", dict), [busy, busy, respond(200)])
    pauses = [step.seconds for step in steps if isinstance(step, Sleep)]
    assert done == {}
    assert all(7 < pause < 8 for pause in pauses)
    with pytest.raises(TooManyRequests) as caught:  # that would be too late
        drive(fetch("/x", dict), [respond(429, **{"retry-after": "70"})])
    assert caught.value.retry_after == 70


def test_pauses_grow_and_are_spread():
    lost = [NoResponse("cut", sent=True)] * 8
    first, _ = drive(fetch("/x", dict), [*lost, respond(200)])
    second, _ = drive(fetch("/x", dict), [*lost, respond(200)])
    pauses = [step.seconds for step in first if isinstance(step, Sleep)]
    assert pauses[0] <= 0.1
    assert pauses[-1] >= 2.5
    assert pauses != [step.seconds for step in second if isinstance(step, Sleep)]


@pytest.mark.parametrize(
    ("received", "requests"),
    [
        (NoResponse("refused", sent=False), 2), (NoResponse("cut", sent=True), 1), (respond(429), 2),
        (respond(503), 1), (respond(502), 1), (respond(500), 1), (respond(409), 1),
    ],
)  # fmt: skip
def test_what_can_not_be_repeated_is_asked_again_only_if_it_was_surely_not_done(received, requests):
    left: list[Response | NoResponse] = [received, respond(200)]
    with contextlib.suppress(RotaError):
        drive(send("POST", "/x", dict), left)
    assert len(left) == 2 - requests


def test_a_doubt_is_not_forgotten_when_a_later_try_does_not_arrive():
    def exchange():
        return (yield Request(method="POST", path="/x", repeatable=True))

    with pytest.raises(ServerUnavailable) as caught:
        drive(
            exchange(),
            [NoResponse("cut", sent=True), *[NoResponse("no", sent=False, permanent=True)]],
        )
    assert caught.value.in_doubt


def test_an_event_counts_once_it_is_complete():
    parser = Parser("")
    assert parser.feed(b"retry: 1000\n\nid: 1-0\n\n") == []
    assert parser.last_id == "1-0"
    assert parser.feed(b"id: 1-1\nevent: line\nda") == []
    assert parser.last_id == "1-0"
    assert parser.feed(b'ta: {"a"\ndata: :1}\r\n: still here\n\nid: 1-2\n') == [
        ServerEvent("line", b'{"a"\n:1}')
    ]
    assert parser.last_id == "1-1"


def test_a_page_of_something_else_is_not_taken_for_an_answer():
    with pytest.raises(ServerUnavailable, match="Rota server"):
        drive(fetch("/x", dict), [respond(200, b"<html>")])
    with pytest.raises(RotaError, match="502"):
        drive(send("POST", "/x", dict), [respond(502, b"<html>")])
