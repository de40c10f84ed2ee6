"""Windows on columns: by slices of time, by count, by panes; `operators.window_choice` picks."""
