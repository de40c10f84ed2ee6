"""Windows on columns: by slices of time, by count, by panes; `choice` picks the operator."""
