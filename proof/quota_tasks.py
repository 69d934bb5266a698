"""What the tasks of `proof.quotas` promise: also read where nothing of Rota is loaded."""

from __future__ import annotations

QUEUE = "narrow"
TASKS = frozenset({"narrow"})
MAX_DEPTH = 2
# Submits that may be stored at the same moment, each unaware of the others.
AT_ONCE = 3
