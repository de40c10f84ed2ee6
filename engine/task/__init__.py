"""One task: a chain of operators, its input gate and outputs, and the mailbox loop that runs
them."""
