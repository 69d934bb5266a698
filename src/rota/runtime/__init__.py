"""What workers, schedulers and the server share: the ticker, the heartbeat, the clock, verdicts."""
