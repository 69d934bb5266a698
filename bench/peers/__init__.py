"""Rota and its peers behind one small protocol, so that all of them are measured by the same hands.

An adapter is a program, `<folder>/adapter.py`, `.mjs`, `.go` or `.java`, that is started in the peer's
own environment as `adapter COMMAND JSON` and prints one line of JSON at its end:

    setup                                          make the tables; says the version
    submit    count, first, how, task, due, spread   jobs number first.. : how "bulk" or "single";
                                                     due: a moment (epoch), spread: over how many seconds
    trickle   count, first, rate                   single jobs at a steady pace, each moment recorded
    schedule  count, every                         so many schedules of every "minute" or "second"
    work      slots, task, hold, schedules, every  a worker, until it gets SIGTERM

The tasks are `noop` (asynchronous), `plain` (a synchronous function) and `hold` (sleeps so many
seconds). Each job carries its number, and its handler records that number with the moment of its start
in a file of its process (see `common`): that is how executions are counted and lags are measured, of
every peer in the same way. Where things are is told by the environment: BENCH_DATABASE_URL,
BENCH_REDIS_URL, BENCH_RECORDS.

For workflows (`bench.workflows`) there is a second program, `<folder>/flows.py`, with the commands

    setup, work                                    as above; `work` also starts the peer's server
    chain      count, steps, hold, how             chains of steps, one after the other
    functions  count, steps                        functions that are started in one transaction
    fan        count, width                        groups of no-ops, each with one step after it

How each was tuned, and why that is fair, is said at the top of its adapter. `catalogue` has the rest.
"""
