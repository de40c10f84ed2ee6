"""Keyed state that may outgrow memory: a cache in front of a local RocksDB."""
