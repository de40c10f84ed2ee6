"""A differential fuzzer: random typed pipelines, run every way there is, must agree.

    python -m strom.testing.fuzz --seeds 1000            seeds 0..999, every way
    python -m strom.testing.fuzz --start 512 --seeds 1   one seed again, with its case printed

A seed gives a `Case`: columns of random types with nulls, NaN and the like, records with event
times, watermarks and batches, a key, and an operator with its settings. It is run

    model     in plain Python, from lists: the reference
    columns   one operator, in one subtask
    cut       the same, with snapshots between, restored as two halves of the key groups or as one
    rows      the same, windows row by row
    jobs      the whole pipeline in the simulator: crashed, and continued at another parallelism

A second case of the same seed is a function of two inputs, or with broadcast state (`connected`).

Changelogs are applied before they are compared. Where a late record makes a window fire again, the
last result of each window is what counts: how often it fires is open.
"""
