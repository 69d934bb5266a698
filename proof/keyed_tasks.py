"""What the tasks of the workloads promise that have keys: also read where nothing of Rota is loaded."""

from __future__ import annotations

from proof.resource_tasks import AMOUNTS

# -- `proof.keyed`

# How many of its jobs may run at a time; for each key, if the task gives its jobs keys.
AT_A_TIME = {"few": 2, "lonely": 1, "by_customer": 1}
IN_ORDER = frozenset({"in_order"})

# -- `proof.shares`: a fair queue

SHARED = "share"  # its task, and its queue
SHARES = {"a": 1.0, "b": 2.0, "c": 4.0, "d": 1.0}  # the keys and their weights
AT_ONCE = 3  # how many of its jobs run at a time, all keys together
LONGEST = 1.2  # seconds that one takes
PACED = "paced"  # another task, of which one starts every so many seconds
EVERY = 0.5

# -- `proof.unique`

WHILE_WAITING, WHILE_UNFINISHED = "once_waiting", "once_unfinished"
IN_A_WINDOW, DEBOUNCED, THROTTLED = "once_in_a_while", "debounced", "throttled"
UNIQUE = (WHILE_WAITING, WHILE_UNFINISHED, IN_A_WINDOW, DEBOUNCED, THROTTLED)
WINDOW = 6.0  # seconds in which one job is stored
DEBOUNCE, DEBOUNCE_MAX = 2.0, 9.0  # after the last submit, and after the first

# -- `proof.maps`

IN_CHUNKS, AS_JOBS = "member", "member_job"  # a job of the first calls its handler for many items

# -- `proof.sparing`: a queue, named as its first task, that does not keep all of its jobs

SPARED, SPARED_EXACT = "spared", "spared_exact"
OF_SPARED = frozenset({SPARED, SPARED_EXACT})

# The jobs by which schedules start runs, and which journal nothing.
STARTS_RUNS = "rota.start"

# For others of its kind, and not only for a slot.
WAITS = frozenset(AT_A_TIME) | IN_ORDER | {SHARED, PACED} | frozenset(AMOUNTS)
