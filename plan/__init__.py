"""From the program's graph to the one that runs: rewrites, and what each operator is built from."""
