"""Settings of a program: Flink's option keys, where they come from, and PyFlink's objects."""
