"""A shop with Django and Rota: an order and its job are one transaction."""
