"""What users declare: types as Arrow types, durations."""
