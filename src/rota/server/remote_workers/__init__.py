"""The server's side of workers over HTTP: `claims` hands out jobs, `workers` does the rest."""
