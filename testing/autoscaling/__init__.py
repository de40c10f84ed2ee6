"""The autoscaler on simulated jobs: a queueing model of a pipeline under load curves, by seed."""
