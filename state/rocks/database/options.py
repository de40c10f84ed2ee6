"""How RocksDB is set up for the state of streams.

Bloom filters of 10 bits, but none for the last level; LZ4 unless told otherwise; no log of writes.

Index and filter are in the block cache, so they count towards the budget, in partitions of 4 KB.
Whole filters are megabytes a file: where they do not fit into the block cache together, each read
of a row reads some. That cost 40 us a row, and 17 us with those of the last level alone, where 4 to
6 us are left.

Write buffers have filters, too. Without one each read goes down a list of a million keys, of which
every step is a miss of the processor's cache, before it gets to the files: 2 of 6 to 9 us.

Where files are mapped into memory (`mapped`) a read takes no system call and copies nothing:
indexes and filters, which are not compressed, are used where they lie, and blocks are decompressed
from there into the block cache. The former take none of the budget: they are the page cache's,
which drops what nobody asks for. Blocks are small, 1.5 KB are decompressed for a row and not 4 KB,
with fewer restarts, so that files are as large as they were. A change of a small row that is not in
memory takes 0.7 of the time of the task's thread, one of 200 bytes 0.8.

Where files are mapped and not compressed a block is used where it lies, too, and has more restarts,
which hardly makes it larger: a read goes through four keys and not through 32, a fifth less of its
time. A change of a small row that is not in memory takes less than three quarters of that again,
and the files twice the room.

Files are merged by size (universal compaction) and not by levels, which write nearly all files anew
every few checkpoints where changes are spread over all keys, and checkpoints have to upload what is
new: with 1 % of 10 M keys changed between two of them 25 MB each, and 14 MB so. A database may
take twice its size on the disk while all of it is merged.
"""

from __future__ import annotations

from typing import Any, Final

from .budget import StateBudget

_FILTER: Final = 0.03
"""Which part of a write buffer is a filter of its keys: some 15 bits for each row of 16 bytes."""

_MOST_OLDER: Final = 100
"""In percent of the oldest run of files: once all others together are so large, all are merged."""

_MOST_FILES: Final = 8
"""So many runs are merged: each is looked into for a key that no filter excludes."""

_BLOCK: Final = 1536
"""Bytes of a block in files that are mapped."""

_RESTARTS: Final = 32, 4
"""Of so many keys one is whole, of blocks and of indexes."""

_PLAIN_RESTARTS: Final = 4
"""The same of blocks that are not compressed."""

_LEVELS: Final = 7
"""As many as a database has."""

_FILE: Final = 8 << 20, 64 << 20
"""The least and most bytes of a file, about. Who writes a whole filter has 8 bytes in hand for each
key of the file."""

_LATER: Final = {"block_based_table_factory": "{enable_index_compression=false;}"}
"""What can only be set of a database that is open."""


def options_of(budget: StateBudget, apart: bool = False) -> Any:
    """Of a database within the budget; `apart`: of a file that is made beside it. Its index will be
    compressed (see `_LATER`), so it is in partitions, which go into the block cache."""
    from rocksdict import (
        BlockBasedIndexType,
        BlockBasedOptions,
        DBCompactionStyle,
        DBCompressionType,
        Options,
        UniversalCompactOptions,
    )

    cache, buffers = budget.shared()
    blocks = BlockBasedOptions()
    blocks.set_block_cache(cache)
    blocks.set_bloom_filter(10, False)
    blocks.set_format_version(5)
    if budget.mapped:
        blocks.set_block_size(_BLOCK)
        plain = set(budget.compression) == {"none"}
        blocks.set_block_restart_interval(_PLAIN_RESTARTS if plain else _RESTARTS[0])
        blocks.set_index_block_restart_interval(_RESTARTS[1])
    else:
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        blocks.set_pin_top_level_index_and_filter(True)
    if apart or not budget.mapped:
        blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
        blocks.set_partition_filters(True)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.set_optimize_filters_for_hits(True)
    kinds = [getattr(DBCompressionType, name)() for name in budget.compression]
    options.set_compression_type(kinds[-1])
    if len(kinds) > 1:
        kinds += kinds[-1:] * (_LEVELS - len(kinds))
        options.set_compression_per_level(kinds[:_LEVELS])
    options.set_write_buffer_manager(buffers)
    options.set_write_buffer_size(max(min(budget.write_buffers // 2, 64 << 20), 64 << 10))
    options.set_memtable_whole_key_filtering(True)
    options.set_memtable_prefix_bloom_ratio(_FILTER)
    merging = UniversalCompactOptions()
    merging.max_size_amplification_percent = _MOST_OLDER
    merging.size_ratio = 10
    options.set_compaction_style(DBCompactionStyle.universal())
    options.set_universal_compaction_options(merging)
    options.set_level_zero_file_num_compaction_trigger(_MOST_FILES)
    options.set_max_background_jobs(2)
    options.set_max_open_files(512)
    if budget.mapped:
        options.set_allow_mmap_reads(True)
        least, most = _FILE
        options.set_target_file_size_base(max(least, min(budget.write_buffers // 4, most)))
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(1 << 20)
    return options


def set_later(db: Any, budget: StateBudget) -> None:
    """To be called of a database that was opened with `options_of`, before it is written to."""
    if budget.mapped:
        db.set_options(_LATER)
