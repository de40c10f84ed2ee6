"""Built-in aggregates on columns: see `base`."""
