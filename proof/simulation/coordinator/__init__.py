"""A model of etcd, ZooKeeper and Consul for the simulation, with the faults of each.

The drivers are the real ones: their requests are answered by a model in the same process, over a network
on virtual time (`service.py`). `etcd.py` and `consul.py` are behind httpx, at its transport;
`zookeeper.py` takes kazoo's place, and `threads.py` the place of the threads that its driver waits in.
`faults.py` breaks the service, `rules.py` says what must hold.
"""
