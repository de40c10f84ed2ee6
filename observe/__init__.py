"""Watching jobs: the live view of a terminal."""
