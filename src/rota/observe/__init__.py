"""Stats for Prometheus.

Two kinds. Attempts of this node (`counters`) are counted as they end. The state of the cluster
(`stats`) is read from the database on a scrape, at most every few seconds and for a twentieth of the
time, and never by reading the history. `exposition` makes metric families of both; the number of labels
is bounded: the rest becomes "other".
"""

import weakref

from rota.app import App
from rota.observe.counters import Tally
from rota.observe.exposition import Metrics
from rota.observe.port import MetricsPort

__all__ = ["Metrics", "MetricsPort", "Tally", "shared_metrics"]

# Of the nodes in this process: a server exposes the metrics of the worker beside it.
shared_metrics: weakref.WeakKeyDictionary[App, Metrics] = weakref.WeakKeyDictionary()
