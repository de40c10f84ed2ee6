"""Several sources as one, each read to its end before the next."""

from .source import HybridSource, HybridSourceBuilder

__all__ = ["HybridSource", "HybridSourceBuilder"]
