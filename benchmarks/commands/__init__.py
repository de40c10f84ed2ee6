"""The commands of `python -m benchmarks`, by kind: for each its options, and what is run.

What is run goes from parsed options to result lines. Errors that a user can mend end the program
with a message.
"""
