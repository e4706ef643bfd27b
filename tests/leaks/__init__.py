"""Clients that hide session state in a text or an object, and what the next client of their server sees of it."""
