"""What each query must give, computed the slow and obvious way: plain Python over the same events.

The events are the sources' own (their tests say that they are right). Everything behind them is
done again here, record by record, without windows, watermarks, batches or kernels. A changelog's
reference is the table it comes to.
"""
