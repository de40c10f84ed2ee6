"""Benchmarks, each a command that prints one JSON line: `python -m benchmarks NAME --json`."""
