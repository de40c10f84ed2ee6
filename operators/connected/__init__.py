"""Functions of users with two inputs: co-functions, and functions with broadcast state."""
