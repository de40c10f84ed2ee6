"""The session cluster: one dispatcher on a Ray cluster, to which programs give their jobs."""
