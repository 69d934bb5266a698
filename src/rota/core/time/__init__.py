"""Rules, schedules and plans. Pure: time is always an argument."""
