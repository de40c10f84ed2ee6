"""One output per input, the aggregate of its key so far: on columns and on rows."""
