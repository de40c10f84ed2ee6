"""Operators as plain data: what the API records and what `operators/` builds running code from."""
