"""Logs of jobs: who says a line, where it is written, and how it is read again."""
