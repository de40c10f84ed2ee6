"""Where streams begin and end: sources with positions, sinks with two-phase commit."""
