"""Aggregates over slots that the operator gives out and takes back: for sessions, windows by
count and panes."""
