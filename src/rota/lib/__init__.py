"""Small parts that know nothing of jobs: ids, encryption, tracing, output capture, outgoing HTTP."""
