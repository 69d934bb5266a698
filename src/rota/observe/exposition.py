"""Formats stats and counters as Prometheus' text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from itertools import accumulate
from time import monotonic

import msgspec
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from rota.core.resources import to_public
from rota.observe.counters import BUCKETS, LAG_BUCKETS, Tally
from rota.observe.stats import Stats, Values
from rota.store.database import Database
from rota.worker.role import WorkerRole


class Metrics:
    """The metrics of one process: its worker's counters, if it has one, and the cluster's stats."""

    def __init__(self, database: Database, worker: WorkerRole | None = None) -> None:
        self.namespace = database.settings.namespace
        self.stats = Stats(database)
        self.worker = worker
        self.tally: Tally | None = None
        if worker is not None:
            self.tally = Tally(worker.worker.task_names, worker.heartbeat.clock)
            worker.outcomes.observers.append(self.tally.ended)

    async def render(self, accept: str = "", namespace: str | None = None) -> tuple[bytes, str]:
        """Return the text and its content type. With a namespace: without those of others."""
        await self.stats.refresh()
        registry = CollectorRegistry()
        registry.register(_Families(self, namespace))
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type


class _Families(Collector):
    """One scrape."""

    def __init__(self, metrics: Metrics, namespace: str | None) -> None:
        self._metrics = metrics
        self._namespace = namespace

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._about()
        if self._sees(self._metrics.namespace):
            yield from self._attempts()
            yield from self._worker()
        yield from self._jobs()
        yield from self._nodes()
        if self._namespace is None:
            yield from self._shards()
        yield from self._triggers()
        yield from self._sinks()

    def _sees(self, namespace: str) -> bool:
        return self._namespace in (None, namespace)

    def _about(self) -> Iterator[Metric]:
        stats = self._metrics.stats
        info: Values = {(version("rota"),): 1}
        yield self._gauges("rota_info", "The release that answers.", ["version"], info)
        yield _gauge("rota_database_up", "Whether the database answered the last query.", stats.up)
        if stats.looked_at is not None:
            age = monotonic() - stats.looked_at
            yield _gauge("rota_figures_age_seconds", "Age of the database's stats.", age)
        yield _gauge("rota_figures_seconds", "Duration of the last query for stats.", stats.seconds)

    def _attempts(self) -> Iterator[Metric]:
        tally, namespace = self._metrics.tally, self._metrics.namespace
        if tally is None:
            return
        attempts = CounterMetricFamily(
            "rota_attempts", "Attempts that ended on this node, by what became of them.",
            labels=["namespace", "task", "outcome"],
        )  # fmt: skip
        seconds = HistogramMetricFamily(
            "rota_attempt_seconds", "How long attempts ran.", labels=["namespace", "task"]
        )
        lags = HistogramMetricFamily(
            "rota_start_lag_seconds", "How long after they were due jobs started.",
            labels=["namespace", "task"],
        )  # fmt: skip
        stopped = CounterMetricFamily(
            "rota_attempts_stopped", "Attempts that were stopped here for taking too long.",
            labels=["namespace", "task", "reason"],
        )  # fmt: skip
        for task, counts in tally.tasks.items():
            for outcome, count in counts.outcomes.items():
                attempts.add_metric([namespace, task, outcome], count)
            for reason, count in counts.stopped.items():
                stopped.add_metric([namespace, task, reason], count)
            buckets = _cumulative(BUCKETS, counts.buckets)
            seconds.add_metric([namespace, task], buckets, counts.seconds)
            buckets = _cumulative(LAG_BUCKETS, counts.lag_buckets)
            lags.add_metric([namespace, task], buckets, counts.lag_seconds)
        yield from (attempts, seconds, lags, stopped)

    def _worker(self) -> Iterator[Metric]:
        role = self._metrics.worker
        if role is None:
            return
        slots = role.worker.slots
        yield _gauge("rota_slots", "Jobs that this node can run at a time.", slots.capacity())
        stock = role.worker.stock
        if stock.shapes or stock.held:
            capacity, used = to_public(stock.capacity), to_public(stock.used)
            yield self._gauges(
                "rota_resource_capacity", "What this node has for jobs; memory in bytes.",
                ["resource"], {(name,): amount for name, amount in capacity.items()},
            )  # fmt: skip
            yield self._gauges(
                "rota_resource_used", "What jobs hold of it.", ["resource"],
                {(name,): amount for name, amount in used.items()},
            )  # fmt: skip
        yield _gauge("rota_slots_busy", "Jobs that run here.", slots.count_running())
        outcomes, refused = role.outcomes, role.refused()
        yield _counter("rota_claims", "Batches that this node claimed.", outcomes.claims)
        yield _counter("rota_claimed_jobs", "Jobs that this node claimed.", outcomes.claimed_jobs)
        what = "What was refused to this node because leases had moved on."
        yield _counters("rota_refused", what, ["what"], {(n,): v for n, v in refused.items()})

    def _jobs(self) -> Iterator[Metric]:
        stats = self._metrics.stats
        for name, what, labels, values in (
            ("rota_jobs", "Jobs by queue and state: waiting, scheduled, ready, running.",
             ["namespace", "queue", "state"], stats.jobs),
            ("rota_queue_lag_seconds", "How long the oldest ready job of a queue has been due.",
             ["namespace", "queue"], stats.lag),
            ("rota_queue_depth", ("Jobs of a queue that have not ended, where they are counted; without "
             "a queue: of the namespace."), ["namespace", "queue"], stats.depth),
            ("rota_queue_max_depth", "The limit of a queue's depth, or of the namespace's.",
             ["namespace", "queue"], stats.max_depth),
            ("rota_queue_full", "Whether submits are refused because the limit is reached.",
             ["namespace", "queue"], stats.full),
            ("rota_limit_max", "Jobs that may run at a time under a limit; of each key, if any.",
             ["namespace", "limit"], stats.limit_max),
            ("rota_limit_running", "Jobs that run under a limit, or that nodes may run; all keys.",
             ["namespace", "limit"], stats.limit_running),
            ("rota_limit_waiting", "Keys whose jobs a limit or rate holds back, and handlers that wait.",
             ["namespace", "limit"], stats.limit_waiting),
            ("rota_pool_slots", "Slots that a pool of workers should have.", ["namespace", "pool"],
             stats.pool_slots),
            ("rota_pool_needed_slots", "Slots that the load of a pool keeps busy.",
             ["namespace", "pool"], stats.pool_needed),
            ("rota_dead_letters", "Failed jobs that wait for a person.", ["namespace", "task"],
             stats.dead),
            ("rota_schedules_set_aside", "Schedules that some node can't plan and has set aside.",
             ["namespace"], stats.set_aside),
            ("rota_runs", "Runs of workflows that are under way, by what they do.",
             ["namespace", "workflow", "state"], stats.runs),
        ):  # fmt: skip
            yield self._gauges(name, what, labels, values)
        what = "Occurrences of schedules by outcome, as this process saw them decided."
        occurrences = self._seen(stats.occurrences)
        yield _counters("rota_occurrences", what, ["namespace", "outcome"], occurrences)
        what = "Runs that ended, by outcome, as this process saw them end."
        labels = ["namespace", "workflow", "outcome"]
        yield _counters("rota_runs_ended", what, labels, self._seen(stats.ended_runs))
        what = "Events by kind, as this process saw them recorded."
        yield _counters("rota_events", what, ["namespace", "kind"], self._seen(stats.events))

    def _nodes(self) -> Iterator[Metric]:
        rows = [row for row in self._metrics.stats.nodes if self._sees(row["namespace"])]
        nodes: Values = {(row["namespace"], row["state"]): row["nodes"] for row in rows}
        what = "Nodes by state; those that ended for an hour."
        yield self._gauges("rota_nodes", what, ["namespace", "state"], nodes)
        slots: Counter[tuple[str, ...]] = Counter()
        running: Counter[tuple[str, ...]] = Counter()
        ages: dict[tuple[str, ...], float] = {}
        for row in rows:
            if row["state"] in ("live", "draining", "silent"):
                key = (row["namespace"],)
                slots[key] += row["slots"]
                running[key] += row["running"]
                ages[key] = max(ages.get(key, 0.0), row["heartbeat_age"])
        for name, what, values in (
            ("rota_cluster_slots", "Jobs that all nodes together can run at a time.", slots),
            ("rota_cluster_running", "Jobs that run, as their nodes last reported.", running),
            ("rota_heartbeat_age_seconds", "Time since the oldest of the last heartbeats.", ages),
        ):
            yield self._gauges(name, what, ["namespace"], values)

    def _shards(self) -> Iterator[Metric]:
        shards = self._metrics.stats.shards
        if shards is not None:
            held: Values = {("held",): shards["held"], ("free",): shards["shards"] - shards["held"]}
            yield self._gauges("rota_shards", "Shards with and without an owner.", ["state"], held)
            yield _gauge("rota_shard_owners", "Schedulers that own shards.", shards["owners"])
            yield _gauge("rota_shard_moves_hour", "Takeovers in the last hour.", shards["moves"])
            users = Counter(tuple(each.rsplit(" ", 1)) for each in shards["coordinators"])
            if users:
                what = "Schedulers by coordinator, and whether it answers them."
                labels = ["coordinator", "state"]
                yield self._gauges("rota_coordinator_schedulers", what, labels, users)

    def _triggers(self) -> Iterator[Metric]:
        shards = self._metrics.stats.shards
        rows = [msgspec.json.decode(each) for each in shards["triggers"]] if shards else []
        if not rows:
            return
        lag: Values = {(space, name): waiting for space, name, waiting, *_ in rows}
        what = "Messages that wait in the broker, as last seen."
        yield self._gauges("rota_trigger_lag", what, ["namespace", "trigger"], lag)
        ended: Values = {
            (space, name, outcome): number
            for space, name, _, *numbers in rows
            for outcome, number in zip(("job", "skipped", "dead"), numbers, strict=True)
        }
        what = "Messages by what became of them."
        labels = ["namespace", "trigger", "outcome"]
        yield _counters("rota_trigger_messages", what, labels, self._seen(ended))

    def _sinks(self) -> Iterator[Metric]:
        shards = self._metrics.stats.shards
        rows = [msgspec.json.decode(each) for each in shards["sinks"]] if shards else []
        if not rows:
            return
        lag: Values = {(space, name): waiting for space, name, waiting, *_ in rows}
        what = "Seconds for which the first event that a sink has not sent has waited."
        yield self._gauges("rota_sink_lag_seconds", what, ["namespace", "sink"], lag)
        passed: Values = {
            (space, name, outcome): number
            for space, name, _, *numbers in rows
            for outcome, number in zip(("sent", "skipped"), numbers, strict=True)
        }
        what = "Events that a sink has sent, or left out by its filters."
        labels = ["namespace", "sink", "outcome"]
        yield _counters("rota_sink_events", what, labels, self._seen(passed))

    def _seen(self, values: Values) -> Values:
        return {key: value for key, value in values.items() if self._sees(key[0])}

    def _gauges(self, name: str, what: str, labels: Sequence[str], values: Values) -> Metric:
        family = GaugeMetricFamily(name, what, labels=labels)
        own = self._seen(values) if labels[0] == "namespace" else values
        for key, value in own.items():
            family.add_metric(key, value)
        return family


def _cumulative(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    return list(zip([*map(str, bounds), "+Inf"], accumulate(counts), strict=True))


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(name, what, value=float(value))


def _counter(name: str, what: str, value: float) -> Metric:
    return CounterMetricFamily(name, what, value=value)


def _counters(name: str, what: str, labels: Sequence[str], values: Values) -> Metric:
    family = CounterMetricFamily(name, what, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family
