"""The differential test: the same statements must get the same answers directly and through the pooler."""
