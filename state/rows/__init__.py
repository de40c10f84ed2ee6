"""Rows kept whole: at positions that are used again (`slab`), or in a log (`arena`)."""
