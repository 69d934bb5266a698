"""A whole cluster of Rota in one process, on virtual time and a real PostgreSQL; all faults from a seed.

    python -m proof.simulation --seed 7            one seed, and what it did
    python -m proof.simulation --seeds 1..200      a swarm

The services, the SQL and the schema are the real ones. What is simulated is what surrounds them: time
(`loop.py`), the driver (`driver.py`) with the network (`network.py`) and the server (`gateway.py`)
behind it, which runs every statement on a real PostgreSQL (`engine.py`), and the machines
(`cluster.py`). The same seed gives the same history, statement by statement, which is what makes a
bug that was found once a bug that can be looked at.
"""
