"""A project that puts Rota's backend to every use that Django's interface for tasks has."""
