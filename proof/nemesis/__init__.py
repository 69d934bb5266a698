"""A real cluster in real processes, broken in every way that this machine allows.

    python -m proof.nemesis --seconds 60 --seed 1 --rate 400

- `server`: a PostgreSQL of its own, restarted without warning.
- `proxy`: one between each process and the server: delays, holds, loses, refuses.
- `network`: a network namespace for each node, partitioned by packet filters.
- `clocks`: wall clocks that are wrong.
- `members`: the processes: started, killed, frozen, and started again.
- `tasks`, `client`: what the cluster does meanwhile, and what those who were there write down.
- `plan`, `faults`: what is broken when, from one seed; and the breaking itself.
- `run`: from the first process to the verdict. `figures`: what is printed.

Whatever is started is on one stack that is unwound at the end, at an exception and at Ctrl-C; what a
killed run left behind is removed by the next.
"""
