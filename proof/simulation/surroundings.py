"""What a seed finds when it begins: a database as its owner has set it up, a line that carries little,
batches that are small, days that nobody has made yet."""

from __future__ import annotations

from random import Random
from typing import Any

import rota.operations.settling
import rota.scheduler.firer
import rota.store.submitter
import rota.worker.finisher
from proof import owners
from proof.simulation.engine import Engine
from proof.simulation.gateway import Gateway
from proof.simulation.patches import Patches
from proof.simulation.template import SCHEMA

# Sizes that are large enough to be never reached, made small.
SMALL: tuple[tuple[Any, str, tuple[int, ...]], ...] = (
    (rota.operations.settling, "_MANY", (2, 5)),
    (rota.scheduler.firer, "_SCHEDULES", (2, 5)),
    # Not so few that a schedule with an occurrence a second never catches up with what it has missed.
    (rota.scheduler.firer, "_OCCURRENCES", (3, 6)),
    (rota.scheduler.firer, "_PROMOTIONS", (1, 2)),
    (rota.worker.finisher, "_BATCH", (1, 3)),
    (rota.store.submitter, "_FLUSH", (2, 5)),
)

_FAR_DAYS = f"""
select c.relname as name from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
where i.inhparent in ('{SCHEMA}.past'::regclass, '{SCHEMA}.occurrence'::regclass)
  and c.relname ~ '_[0-9]{{8}}$'
  and to_date(right(c.relname, 8), 'YYYYMMDD') > ({SCHEMA}.now() at time zone 'UTC')::date + 1
order by c.relname
"""


def prepare(
    engine: Engine, gateway: Gateway, patches: Patches, seed: int, moves: frozenset[str]
) -> None:
    if "dba" in moves:
        _set_defaults(engine, gateway, Random(f"{seed} dba"))
    if "limits" in moves:
        _shrink(patches, Random(f"{seed} limits"))
    if "readers" in moves:
        _forget_days(engine)


def _set_defaults(engine: Engine, gateway: Gateway, random: Random) -> None:
    database = engine.ask("select current_database()")[0][0]
    for name, value in owners.choose(random, owners.DEFAULTS).items():
        engine.ask_script(f"alter database {database} set {name} = {value}")
    # The gateway keeps these in the real server's place, by virtual time.
    gateway.defaults |= owners.choose(random, owners.LIMITS)


def _shrink(patches: Patches, random: Random) -> None:
    for module, name, sizes in SMALL:
        if random.random() < 0.5:
            patches.set(module, name, random.choice(sizes))


def _forget_days(engine: Engine) -> None:
    """As after a week in which nobody looked after the tables: they are made while others work."""
    for row in engine.ask(_FAR_DAYS):
        engine.ask_script(f"drop table {SCHEMA}.{row['name']}")
