"""Opens the coordinator that the setting `coordination` names. Its module is imported only then."""

from __future__ import annotations

from rota.lib.addresses import Address, parse_address
from rota.scheduler.coordination import Coordination, PostgresCoordination
from rota.store.database import Database

FIELD = "coordination"
_PORTS = {"etcd": 2379, "zookeeper": 2181, "consul": 8500}
_OPTIONS = {"datacenter": "the datacenter of Consul"}


def parse_coordination(text: str) -> Address:
    """Read the setting: `etcd://`, `zookeeper://` or `consul://`, with `+tls` for an encrypted line."""
    return parse_address(FIELD, text, _PORTS, _OPTIONS)


async def open_coordination(
    text: str | None, database: Database, given: Coordination | None = None
) -> Coordination:
    """Return who shares the shards out: PostgreSQL, or what is given or named, behind the fence."""
    if given is None and not text:
        return PostgresCoordination(database)
    from rota.scheduler.coordination.guarded import GuardedCoordination

    if given is not None:
        return GuardedCoordination(given, database, type(given).__name__)
    address = parse_coordination(text or "")
    # Installations may share a coordinator: each has a folder of its own.
    folder = f"{address.path or 'rota'}/{await database.fetchval('installation_id')}"
    return GuardedCoordination(open_driver(address, folder), database, address.shown)


def open_driver(address: Address, folder: str) -> Coordination:
    if address.scheme == "etcd":
        from rota.scheduler.coordination.etcd import EtcdCoordination

        return EtcdCoordination(address, folder)
    if address.scheme == "consul":
        from rota.scheduler.coordination.consul import ConsulCoordination

        return ConsulCoordination(address, folder)
    from rota.scheduler.coordination.zookeeper import ZooKeeperCoordination

    return ZooKeeperCoordination(address, folder)
