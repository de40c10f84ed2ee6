"""Aggregates over slots that the operator gives out and takes back: for sessions, windows by
count, panes, and built-in functions of windows that run row by row."""
