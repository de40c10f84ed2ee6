# Every target sets up what it needs by itself.

.PHONY: demo test test-fast check format bench clean

demo: .venv/.installed
	.venv/bin/python examples/flight_delays.py

test: .venv/.installed
	.venv/bin/python -m pytest

test-fast: .venv/.installed
	.venv/bin/python -m pytest -m "not ray and not spark and not slow"

check: .venv/.installed
	scripts/check

format: .venv/.installed
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

bench: .venv/.installed
	.venv/bin/python -m benchmarks nexmark all --parallelism 2 --host ray --json
	for name in wordcount wordcount_columns kstate kprocess; do \
	  .venv/bin/python -m benchmarks $$name --parallelism 2 --host ray --json; \
	done

.venv/.installed: setup.cfg scripts/setup
	scripts/setup

clean:
	rm -rf .venv build dist out .mypy_cache .ruff_cache .pytest_cache .hypothesis
