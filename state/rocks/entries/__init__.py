"""Entries of keys, such as open sessions, as caches of RocksDB."""
