"""When things are due. Pure: time is always an argument."""
