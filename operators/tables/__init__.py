"""Tables per key that change with every batch: group aggregates, top-n, deduplication, over."""
