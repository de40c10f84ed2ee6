"""What is wrong with an environment, and what to do: the checks behind `strom doctor`."""
