"""Who is asking: tokens, people, sessions, and the ways to log in."""
