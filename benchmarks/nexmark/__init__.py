"""The Nexmark queries, each written with the public API as a user would write it.

`registry.NEXMARK` has them by name; `references` computes the same in plain Python.
"""
