"""Parts that workers, schedulers and the server share: ticker, heartbeat, clock, verdicts."""
