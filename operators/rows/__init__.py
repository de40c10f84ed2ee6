"""Functions of users that see one record at a time, and what these may ask for: keyed state,
timers, context."""
