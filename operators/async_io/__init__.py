"""Requests to what answers later: a coroutine per record or batch, in flight beside the task."""
