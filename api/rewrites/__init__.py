"""Rewrites of the program's graph, which change neither results nor operator ids."""
