"""Everything that a person or a program can do, once per verb.

A verb checks its input, acts in a transaction, records the change in the audit log and returns a typed
result. `App`, the REST API, the dashboard and the command line translate to and from these verbs.
"""
