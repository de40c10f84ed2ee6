"""What is served: a catalog of jobs, of a session, of one job, or of an archive."""
