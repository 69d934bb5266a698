"""What the tasks of `proof.keyed` promise: also read where nothing of Rota is loaded."""

from __future__ import annotations

# How many of its jobs may run at a time; for each key, if the task gives its jobs keys.
AT_A_TIME = {"few": 2, "by_customer": 1}
IN_ORDER = frozenset({"in_order"})
WAITS = frozenset(AT_A_TIME) | IN_ORDER  # for others of its kind, and not only for a slot
