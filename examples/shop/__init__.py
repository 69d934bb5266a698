"""A small web shop whose background work runs on Rota. See app.py first."""
