"""Functions of one record as steps on columns, where that is proved to give the same.

A function is read from its bytecode (`reading`), never called: what it would do is worked out with
a column in the place of each field. So nothing that it might do beside its result happens once too
often, and what it reads from outside is known (`outside`): only values that cannot change, looked
at again before each batch. What is not understood completely is refused, with a reason: loops,
`try`, calls of what is not known, whatever is stored anywhere but in a local variable.

The outcome is a `program`: steps, each an operation on whole columns, and branches, which part the
records. What a record does not reach is not computed for it, as in Python. An operation gives what
Python gives for every record or raises `Beyond` for all of them (`numbers`, `texts`): an integer
beyond 64 bits, a None where Python wants a number, a zero that something is divided by. The batch
then goes by rows, through the function itself, as if there were no columns; so errors, dead letters
and results are the function's own.

Rejected: the source's text (not always there, and two lambdas may share a line) and a call with a
tracing record (its side effects would happen, and which way it branches depends on it).
"""
