"""What the API answers with: a job's view in the shapes of Flink's REST, as plain functions."""
