"""Ahead of the exchange: partial aggregates, and the records that may hold an extreme."""
