"""Functions and expressions over whole batches."""
