"""Event time: timestamps, watermarks, idleness, and how those of many inputs are combined."""
