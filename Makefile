# Every target sets up what it needs by itself.

.PHONY: demo demo-kafka kafka test test-browser seeds simulate soak fuzz-rest test-fast check format reference bench soak-state vendor pictures tour wheel wheel-pure wheel-aarch64 clean

demo: .venv/.installed
	.venv/bin/python examples/flight_delays.py

demo-kafka: .venv/.installed
	.venv/bin/python examples/kafka_bids.py

kafka: .venv/.installed
	.venv/bin/python -m strom.testing.kafka

test: .venv/.installed
	scripts/test

test-browser: .venv/.installed
	.venv/bin/python -m pytest -m browser tests/dashboard

# The schedules of the simulator, of which `make test` runs 20.
seeds: .venv/.installed
	STROM_SEEDS=1000 .venv/bin/python -m pytest -n auto -k test_every_schedule tests/e2e/test_simulator_seeds.py

# Random jobs under random faults, of which `make test` runs some: all processors, one line of JSON.
simulate: .venv/.installed
	.venv/bin/python -m strom.testing.simulation --seeds $${SEEDS:-1000} --from $${SEED:-0} -j $$(nproc)

# All tests, with all that they draw at random, of which `make test` draws a part, and those that
# take too long for it: wheels, memory of much state, the benchmarks of Spark's connectors.
soak: .venv/.installed
	STROM_SOAK=1 STROM_AMOUNT=1 STROM_SEEDS=200 scripts/test

# Random requests to each path of the REST API, of which `make test` makes ten.
fuzz-rest: .venv/.installed
	PYTHONPATH=tests/kits .venv/bin/python tests/kits/rest_fuzz.py 1000 $${SEED:-0}

test-fast: .venv/.installed
	.venv/bin/python -m pytest -m "not (ray or spark or kafka or postgres or s3 or browser or slow or soak)"

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

soak-state: .venv/.installed
	.venv/bin/python tests/kits/state_soak.py $(SOAK)

# The libraries of the dashboard, from npm into dashboard/static/vendor, as they are committed.
vendor: .venv/.installed
	.venv/bin/python scripts/vendor_dashboard.py

# The pictures in docs/images, made by tests: of the dashboard and a notebook, in a browser, and of
# `strom top`.
pictures: .venv/.installed
	STROM_PICTURES=docs/images .venv/bin/python -m pytest -q tests/observe/test_top_picture.py
	STROM_PICTURES=docs/images .venv/bin/python -m pytest -q -m browser tests/dashboard/test_pictures.py tests/notebook/test_pictures.py

# The commands in docs/cli.md, from their help.
reference: .venv/.installed
	.venv/bin/python tests/cli/test_reference.py

# A session as a new user meets it, from an empty folder: a wheel, three jobs, all commands, pictures.
tour: .venv/.installed
	.venv/bin/python scripts/session_tour.py $(TOUR)

# Into dist/: for this platform, with compiled kernels; for any, which leaves them to numba.
wheel: .venv/.installed
	scripts/wheel

wheel-pure: .venv/.installed
	scripts/wheel --pure

# Into dist/aarch64/, on a machine of another kind: made and tried under qemu. Needs root.
wheel-aarch64:
	scripts/wheel_aarch64 $(AARCH64)

.venv/.installed: setup.cfg scripts/setup
	scripts/setup

clean:
	rm -rf .venv build dist out .mypy_cache .ruff_cache .pytest_cache .hypothesis
