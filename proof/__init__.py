"""The proof that nothing is lost and nothing runs twice: faults, histories, and a checker.

Not part of the package that users install. Three ways to make a history, one way to judge it:

- `simulation/`: the real services and the real SQL on virtual time, every fault from one seed.
- `nemesis/`: real processes, a real server of PostgreSQL, real signals and broken networks.
- `sweep.py`: a crash at every named failpoint, one after the other.
- `checker/`: reads what they wrote down, and knows nothing of Rota's own code.
"""
