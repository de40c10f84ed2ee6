"""The built-in aggregates row by row, where windows have no kernels."""
