"""Random functions of two inputs, and with broadcast state: each seed is one more case.

model     a loop over the script, with dicts
operator  one operator, in one subtask
cut       the same, with snapshots between and in the middle of firings, restored as two halves
          of the key groups or as one
    jobs      whole pipelines whose results do not depend on which input comes first: alone,
              crashed, continued at another parallelism, and with a function that raises
"""
