"""The REST API: jobs as Flink's REST describes them, and what may be done with them."""
