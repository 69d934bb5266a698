"""`make ha`: a Patroni cluster of three machines, broken in every way while Rota works on it.

- `network`: a network namespace for each machine, joined by a bridge, and cut by packet filters.
- `cluster`: the machines (etcd, Patroni, PostgreSQL) and their front (haproxy, PgBouncer).
- `trial`: Rota's nodes, clients and schedules on it; the faults, one after another.
- `figures`: what was lost and for how long, read from the history of a trial.
"""
