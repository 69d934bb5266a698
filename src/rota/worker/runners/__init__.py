"""How a handler runs: on the event loop, in a child process, or in a thread."""
