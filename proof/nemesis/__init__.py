"""A real cluster in real processes, broken in every way that this machine allows.

    python -m proof.nemesis --seconds 60 --seed 1 --rate 400

- `server`: a PostgreSQL of its own, restarted without warning.
- `database`: what is done to it: SQLSTATEs, locks, cancelled statements, dropped days, settings.
- `readers`: those who only read, for minutes, and pg_dump.
- `proxy`, `wire`: one between each process and the server: delays, holds, loses, refuses, tells lies.
- `network`: a network namespace for each node, partitioned by packet filters.
- `clocks`: wall clocks that are wrong, the database's among them.
- `members`: the processes: started, killed, frozen, and started again.
- `tasks`, `client`, `operating`: what the cluster does meanwhile, what is asked of it, and what those
  who were there write down.
- `plan`, `faults`: what is broken when, from one seed; and the breaking itself.
- `run`: from the first process to the verdict. `figures`: what is printed.

Whatever is started is on one stack that is unwound at the end, at an exception and at Ctrl-C; what a
killed run left behind is removed by the next.
"""
