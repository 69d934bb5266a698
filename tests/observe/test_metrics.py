"""Stats for Prometheus: right, bounded, cheap to ask for; and alerts that really fire."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from proof.waiting import eventually
from rota import App, ConfigError, Retry
from rota.node import Node
from rota.observe import Metrics, Tally
from rota.observe import stats as stats_module
from tests.support.places import ROOT

DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"


@pytest.fixture
async def app(make_app: Callable[..., App]) -> App:
    app = make_app(heartbeat=0.5, metrics_port=0)

    @app.task
    async def fine() -> None: ...

    @app.task(retry=Retry(max_attempts=2, base=0.01))
    async def hopeless() -> None:
        raise ValueError("no luck")

    return app


def fetch(port: int, path: str = "/metrics") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(text: str, name: str, **labels: str) -> float | None:
    return samples(text).get((name, tuple(sorted(labels.items()))))


async def test_a_node_tells_what_it_did_and_what_the_database_holds(app: App) -> None:
    async with Node(app).running() as node:
        for _ in range(3):
            await (await app.submit("fine")).wait(30)
        await (await app.submit("hopeless")).wait(30)
        await app.submit("fine", queue="nobody", delay=3600)
        assert node.metrics_port is not None
        status, text = await asyncio.to_thread(fetch, node.metrics_port.port)
        here = {"namespace": "default"}
        expected = {
            ("rota_attempts_total", ("fine", "succeeded")): 3,
            ("rota_attempts_total", ("hopeless", "retried")): 1,
            ("rota_attempts_total", ("hopeless", "failed")): 1,
        }
        assert status == 200
        for (name, (task, outcome)), count in expected.items():
            assert value(text, name, task=task, outcome=outcome, **here) == count
        assert value(text, "rota_attempt_seconds_count", task="fine", **here) == 3
        assert value(text, "rota_attempt_seconds_bucket", task="fine", le="+Inf", **here) == 3
        assert value(text, "rota_dead_letters", task="hopeless", **here) == 1
        assert value(text, "rota_jobs", queue="nobody", state="scheduled", **here) == 1
        assert value(text, "rota_nodes", state="live", **here) == 1
        assert value(text, "rota_claimed_jobs_total") == 5
        assert value(text, "rota_database_up") == 1
        held = value(text, "rota_shards", state="held")
        free = value(text, "rota_shards", state="free")
        assert held is not None
        assert free is not None
        assert held + free == 128


async def test_lag_is_the_age_of_the_oldest_ready_job(app: App) -> None:
    await app.submit("fine")
    store = await app.store()
    async with store.database.connection() as connection:
        await connection.execute(
            f"update {app.settings.schema}.present set due_at = now() - interval '1 hour'"
        )
    body, _ = await Metrics(store.database).render()
    lag = value(body.decode(), "rota_queue_lag_seconds", namespace="default", queue="default")
    assert lag is not None
    assert 3600 <= lag < 3700


async def test_the_database_is_asked_seldom_however_often_it_is_scraped(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.submit("fine")
    metrics = Metrics((await app.store()).database)
    await asyncio.gather(*(metrics.render() for _ in range(50)))
    assert metrics.stats.looks == 1
    monkeypatch.setattr(stats_module, "_AT_MOST_EVERY", 0.0)
    monkeypatch.setattr(stats_module, "_SHARE", 0)
    metrics.stats._again_at = 0.0
    await metrics.render()
    await metrics.render()
    assert metrics.stats.looks == 3


async def test_the_history_is_never_read(app: App) -> None:
    """Statements that mention it are explained: no partition of the past is in any plan."""
    database = (await app.store()).database
    async with database.connection() as connection:
        for name in (
            "present_by_lane",
            "future_by_queue",
            "count_dead_by_task",
            "count_nodes",
            "count_shards",
        ):
            query = database.queries[name]
            for place in ("$1", "$2", "$3"):
                query = query.replace(place, "null")
            rows = await connection.fetch(f"explain {query}")
            assert "past" not in "\n".join(row[0] for row in rows), name
        await connection.execute("set enable_seqscan = off")
        query = database.queries["count_occurrences"]
        query = query.replace("$1", "now() - interval '1 minute'").replace("$2", "now()")
        plan = "\n".join(row[0] for row in await connection.fetch(f"explain {query}"))
        assert "decided_at" in plan
        assert "Seq Scan on occurrence" not in plan


async def test_occurrences_and_events_are_counted_on(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.schedule("s", "fine", every="1d")
    database = (await app.store()).database
    metrics = Metrics(database)
    monkeypatch.setattr(stats_module, "_AT_MOST_EVERY", 0.0)
    monkeypatch.setattr(stats_module, "_SHARE", 0)
    monkeypatch.setitem(database.queries, "settled_moment", database.queries["now"])
    await metrics.render()  # from here on it counts
    await app.schedules.trigger("s")
    schema = app.settings.schema
    async with database.connection() as connection:
        await connection.execute(
            f"insert into {schema}.occurrence (schedule_id, due_at, run_at, version, state, reason)"
            f" select id, now() - interval '1 h', now(), 1, 2, 'catch_up' from {schema}.schedule;"
            f"insert into {schema}.event (namespace, kind, task, detail)"
            " values ('default', 'slow', 'fine', '{}')"
        )
    for _ in range(2):  # the second look counts nothing twice
        text = (await metrics.render())[0].decode()
    labels = {"namespace": "default"}
    assert value(text, "rota_occurrences_total", outcome="catch_up", **labels) == 1
    assert value(text, "rota_events_total", kind="slow", **labels) == 1


async def test_a_namespace_sees_only_itself(make_app: Callable[..., App]) -> None:
    one, other = make_app(), make_app(namespace="other")
    for app in (one, other):
        await app.submit("somewhere")
    metrics = Metrics((await one.store()).database)
    everything = (await metrics.render())[0].decode()
    assert 'namespace="other"' in everything
    assert "rota_shards" in everything
    own = (await metrics.render(namespace="default"))[0].decode()
    assert 'namespace="default"' in own
    assert "other" not in own
    assert "rota_shards" not in own


async def test_too_many_queues_and_tasks_become_other(app: App) -> None:
    for number in range(230):
        await app.submit("fine", queue=f"q{number:03}", delay=3600)
    text = (await Metrics((await app.store()).database).render())[0].decode()
    assert len(set(re.findall(r'queue="([^"]+)"', text))) == 201
    assert value(text, "rota_jobs", namespace="default", queue="other", state="scheduled") == 30
    tally = Tally(f"task{number:04}" for number in range(1_000))
    assert len(tally.tasks) == 200
    assert "other" in tally.tasks


async def test_the_port_answers_nothing_else_and_survives_nonsense(app: App) -> None:
    async with Node(app).running() as node:
        assert node.metrics_port is not None
        port = node.metrics_port.port
        assert (await asyncio.to_thread(fetch, port, "/other"))[0] == 404
        for nonsense in (b"\xff\xfe\r\n\r\n", b"POST /metrics HTTP/1.1\r\n\r\n", b"x" * 20_000):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(nonsense)
            answer = await reader.read()
            assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 405", b"HTTP/1.1 431"))
            writer.close()
        with pytest.raises(ConfigError, match=f"metrics_port {port}"):
            await Node(_with_port(app, port)).start()
        assert (await asyncio.to_thread(fetch, port))[0] == 200


def _with_port(app: App, port: int) -> App:
    return App(settings=app.settings.replace(metrics_port=port))


async def test_figures_stay_when_the_database_is_away(app: App) -> None:
    metrics = Metrics((await app.store()).database)
    await metrics.render()
    await app.close()
    metrics.stats._again_at = 0.0
    text = (await metrics.render())[0].decode()
    assert value(text, "rota_database_up") == 0
    assert value(text, "rota_figures_age_seconds") is not None


# -- Prometheus itself


@pytest.fixture
def promtool() -> str:
    if (found := shutil.which("promtool")) is None:
        pytest.skip("there is no promtool here: Debian has it in the package prometheus")
    return found


def test_the_rules_are_right(promtool: str, tmp_path: Path) -> None:
    checked = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_alerts_fire_when_they_should(promtool: str, tmp_path: Path) -> None:
    """Each rule on made-up series: silent before, firing after."""
    series = [
        ("RotaDeadLetters", 'rota_dead_letters{namespace="a", task="t"}', "0x5 2x30", "2"),
        ("RotaQueueLag", 'rota_queue_lag_seconds{namespace="a", queue="q"}', "0x5 400x30", "400"),
        (
            "RotaRunParked",
            'rota_runs{namespace="a", workflow="w", state="parked"}',
            "0x5 2x30",
            "2",
        ),
        ("RotaScheduleSetAside", 'rota_schedules_set_aside{namespace="a"}', "0x5 3x30", "3"),
        ("RotaShardsWithoutOwner", 'rota_shards{state="free"}', "0x5 7x30", "7"),
        ("RotaNodeDied", 'rota_nodes{namespace="a", state="dead"}', "0x5 1x30", "1"),
        ("RotaNodeSilent", 'rota_nodes{namespace="a", state="silent"}', "0x5 1x30", "1"),
        ("RotaDatabaseDown", "rota_database_up", "1x5 0x30", "0"),
    ]
    names = re.findall(r"alert: (\w+)", RULES.read_text())
    kinds = ("SlowRuns", "slow"), ("Slower", "slower"), ("TimedOut", "timed_out")
    more = ("DeadlineMissed", "deadline_missed"), ("RunFailed", "run_failed")
    for alert, kind in (*kinds, *more):
        name = f'rota_events_total{{namespace="a", kind="{kind}"}}'
        series.append((f"Rota{alert}", name, "0x5 1+1x30", ""))
    late = 'rota_start_lag_seconds_bucket{namespace="a", task="t", le="300.0"}'
    series.append(("RotaStartLag", late, "0x5 0+60x60", ""))
    apart = {"RotaNoWorker", "RotaFailing", "RotaMissedOccurrences", "RotaNotScraped"}
    assert {name for name, *_ in series} | apart == set(names)
    tests = [
        {
            "interval": "1m",
            "input_series": _input(name, values),
            "promql_expr_test": [],
            "alert_rule_test": [
                {"eval_time": "4m", "alertname": alert, "exp_alerts": []},
            ],
        }
        for alert, name, values, _ in series
    ]
    fires = [_fires(*one) for one in series]
    file = tmp_path / "tests.json"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "tests": [*tests, *fires]}))
    ran = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def _input(name: str, values: str) -> list[dict[str, str]]:
    """The series; and if it is a bucket, those around it: nothing is as quick, nothing is slower."""
    series = [{"series": name, "values": values}]
    if 'le="300.0"' in name:
        series.append({"series": name.replace("300.0", "60.0"), "values": "0x60"})
        series.append({"series": name.replace("300.0", "+Inf"), "values": values})
    return series


def _fires(alert: str, name: str, values: str, figure: str) -> dict[str, Any]:
    expression = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})'
    return {
        "interval": "1m",
        "input_series": _input(name, values),
        "promql_expr_test": [
            {
                "expr": expression,
                "eval_time": "20m",
                "exp_samples": [{"labels": "{}", "value": 1}],
            }
        ],
    }


def test_the_dashboard_and_the_rules_ask_for_figures_that_exist() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "rota.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    source = Path(stats_module.__file__).with_name("exposition.py").read_text()
    known = set(re.findall(r'"(rota_\w+)"', source))
    suffixes = ("_total", "_bucket", "_count", "_sum")
    for text in [*expressions, RULES.read_text()]:
        for name in re.findall(r"\brota_\w+", text):
            stem = next((name.removesuffix(s) for s in suffixes if name.endswith(s)), name)
            assert stem in known, f"{name} in {text[:80]}"
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


@pytest.fixture
def programs() -> tuple[str, str]:
    found = shutil.which("prometheus"), shutil.which("prometheus-alertmanager")
    if None in found:
        pytest.skip("there is no Prometheus here: Debian has prometheus, prometheus-alertmanager")
    return found  # type: ignore[return-value]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def ask(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.loads(answer.read())
    except OSError:
        return None


class Programs:
    """Started here, on the loopback, and stopped by their own process ids."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str) -> None:
        with (self.folder / f"{Path(command[0]).name}.log").open("wb") as log:
            self.started.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder))

    def stop(self) -> None:
        for program in reversed(self.started):
            program.send_signal(signal.SIGTERM)
            program.wait(30)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Programs]:
    programs = Programs(tmp_path)
    yield programs
    programs.stop()


@pytest.mark.proof
@pytest.mark.timeout(300)
async def test_prometheus_scrapes_a_node_and_the_alert_reaches_alertmanager(
    app: App, programs: tuple[str, str], running: Programs, tmp_path: Path
) -> None:
    prometheus, alertmanager = programs
    rules = RULES.read_text().replace("for: 1m", "for: 1s")
    (tmp_path / "rules.yml").write_text(rules)
    web, alerts = free_port(), free_port()
    (tmp_path / "alertmanager.yml").write_text(
        "route: {receiver: none}\nreceivers: [{name: none}]\n"
    )
    async with Node(app).running() as node:
        assert node.metrics_port is not None
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "alerting": {
                "alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alerts}"]}]}]
            },
            "scrape_configs": [
                {
                    "job_name": "rota",
                    "static_configs": [{"targets": [f"127.0.0.1:{node.metrics_port.port}"]}],
                }
            ],
        }
        (tmp_path / "prometheus.yml").write_text(json.dumps(config))
        running.start(
            alertmanager, "--config.file=alertmanager.yml", f"--storage.path={tmp_path}/am",
            f"--web.listen-address=127.0.0.1:{alerts}",
            "--cluster.listen-address=", "--log.level=warn",
        )  # fmt: skip
        running.start(
            prometheus, "--config.file=prometheus.yml", f"--storage.tsdb.path={tmp_path}/tsdb",
            f"--web.listen-address=127.0.0.1:{web}", "--log.level=warn",
        )  # fmt: skip
        job = await (await app.submit("hopeless")).wait(60)
        assert job.state == "failed"

        async def scraped() -> Any:
            query = f"http://127.0.0.1:{web}/api/v1/query?query=rota_dead_letters"
            answer = await asyncio.to_thread(ask, query)
            return answer and answer["data"]["result"]

        (found,) = await eventually(scraped, 90, "a scrape")
        assert found["metric"]["task"] == "hopeless"
        assert found["value"][1] == "1"

        async def alerted() -> Any:
            answer = await asyncio.to_thread(ask, f"http://127.0.0.1:{alerts}/api/v2/alerts")
            return [a for a in answer or [] if a["labels"]["alertname"] == "RotaDeadLetters"]

        (alert,) = await eventually(alerted, 90, "the alert")
        assert alert["labels"]["task"] == "hopeless"
        assert alert["annotations"]["summary"] == "1 jobs of hopeless have failed for good"


# -- probes


def probe(port: int, path: str) -> tuple[int, dict[str, Any]]:
    status, body = fetch(port, path)
    return status, json.loads(body)


def failed(answer: tuple[int, dict[str, Any]]) -> list[str]:
    return [check["name"] for check in answer[1]["checks"] if not check["ok"]]


@pytest.mark.parametrize("roles", [("worker",), ("scheduler",), ("scheduler", "worker")])
async def test_a_node_of_every_role_answers_probes(app: App, roles: Any) -> None:
    async with Node(app, roles=roles).running() as node:
        assert node.metrics_port is not None
        port = node.metrics_port.port

        async def is_ready() -> bool:
            return (await asyncio.to_thread(probe, port, "/readyz"))[0] == 200

        await eventually(is_ready)
        status, health = await asyncio.to_thread(probe, port, "/healthz")
        assert (status, health["ok"], health["roles"]) == (200, True, list(roles))


async def test_a_node_that_stops_is_alive_and_not_ready(app: App) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    @app.task
    async def long() -> None:
        begun.set()
        await over.wait()

    node = Node(app, roles=["worker"])
    await node.start()
    assert node.metrics_port is not None
    port = node.metrics_port.port
    await app.submit("long")
    await asyncio.wait_for(begun.wait(), 60)
    stopping = asyncio.create_task(node.stop())

    async def is_draining() -> bool:
        return "draining" in failed(await asyncio.to_thread(probe, port, "/readyz"))

    await eventually(is_draining)
    assert (await asyncio.to_thread(probe, port, "/healthz"))[0] == 200
    over.set()
    await stopping


async def test_a_node_without_its_database_is_alive_and_not_ready(app: App) -> None:
    async with Node(app, roles=["worker"]).running() as node:
        assert node.metrics_port is not None
        heartbeat = node._heartbeat
        assert heartbeat is not None
        heartbeat.trusted_until = 0.0  # as when heartbeats have failed for a lease
        answer = node.readiness()
        assert [check.name for check in answer.checks if not check.ok] == ["database"]
        assert node.health().ok
        heartbeat.tried_at = float("-inf")  # as when the heartbeat's thread hangs
        assert not node.health().ok


async def test_metrics_are_told_on_the_address_that_was_asked_for(
    make_app: Callable[..., App], caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(metrics_port=0, metrics_host="127.0.0.3")
    async with Node(app, roles=["scheduler"]).running() as node:
        assert node.metrics_port is not None
        url = f"http://127.0.0.3:{node.metrics_port.port}/metrics"
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=60).read())
        assert b"rota_info" in text
        with pytest.raises(urllib.error.URLError):
            await asyncio.to_thread(fetch, node.metrics_port.port)
    bad = make_app(metrics_port=0, metrics_host="203.0.113.7")
    with pytest.raises(ConfigError, match=r"metrics_host 203\.0\.113\.7 can't be listened on"):
        await Node(bad, roles=["scheduler"]).start()


# -- lag and stops


async def test_how_late_jobs_started_and_why_attempts_were_stopped_is_counted(app: App) -> None:
    @app.task(timeout=0.05, retry=Retry(max_attempts=1))
    async def stuck() -> None:
        await asyncio.Event().wait()

    @app.task(heartbeat_timeout=0.05, retry=Retry(max_attempts=1))
    async def silent() -> None:
        await asyncio.Event().wait()

    await app.submit("fine")
    await asyncio.sleep(0.3)  # the lag itself
    async with Node(app).running() as node:
        assert node.metrics_port is not None
        for task in ("stuck", "silent", "fine"):
            await (await app.submit(task)).wait(60)
        _, text = await asyncio.to_thread(fetch, node.metrics_port.port)
    labels = {"namespace": "default", "task": "fine"}
    assert value(text, "rota_start_lag_seconds_count", **labels) == 2
    assert value(text, "rota_start_lag_seconds_bucket", le="0.25", **labels) in (0, 1)
    lag = value(text, "rota_start_lag_seconds_sum", **labels)
    assert lag is not None
    assert lag >= 0.3
    for task, reason in (("stuck", "timeout"), ("silent", "heartbeat")):
        stopped = {"namespace": "default", "task": task, "reason": reason}
        assert value(text, "rota_attempts_stopped_total", **stopped) == 1
