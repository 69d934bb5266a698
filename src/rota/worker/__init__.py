"""Workers: claim jobs, run them, and write how they ended."""
