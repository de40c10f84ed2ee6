"""The connector seam, and the connectors that need no outside system."""
