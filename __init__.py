"""strom: stateful stream processing in Python on Ray."""
