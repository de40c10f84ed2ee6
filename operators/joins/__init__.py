"""Operators with two inputs that bring records of equal keys together."""
