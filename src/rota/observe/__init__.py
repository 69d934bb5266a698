"""Stats for Prometheus.

Two kinds. What this node does (`tally`) is counted as it happens, in plain numbers. What the cluster
holds (`figures`) is asked of the database when somebody scrapes, at most every few seconds and a
twentieth of the time, however often that is, and never by reading the history. `exposition` makes
families of both; labels are bounded: what is too many becomes "other".
"""

import weakref

from rota.app import App
from rota.observe.counters import Tally
from rota.observe.exposition import Metrics
from rota.observe.port import MetricsPort

__all__ = ["Metrics", "MetricsPort", "Tally", "shared_metrics"]

# Of the nodes in this process: a server tells what the worker beside it does.
shared_metrics: weakref.WeakKeyDictionary[App, Metrics] = weakref.WeakKeyDictionary()
