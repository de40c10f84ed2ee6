"""Windows, what assigns records to them, and the triggers that fire them."""
