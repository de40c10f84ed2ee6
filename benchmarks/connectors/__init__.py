"""Sources and sinks of real systems, measured on this machine beside them."""
