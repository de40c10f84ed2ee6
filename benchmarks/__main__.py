"""`python -m benchmarks`. The workloads are imported by their installed name, so that functions
shipped to tasks are found there, wherever this was started."""

from strom.benchmarks.cli import main

if __name__ == "__main__":
    main()
