"""PostgreSQL's own regression tests, with a pooler in between."""
