"""Timers, of which those due soonest are in memory."""
