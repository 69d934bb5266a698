"""The same small service with four frameworks: an order is taken, a job confirms it."""
