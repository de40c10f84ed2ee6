"""Values that no accumulator array can hold, under integer codes."""
