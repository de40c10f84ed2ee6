"""`python -m strom.testing.fuzz`: run seeds, print those that fail."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback

from .connected.cases import draw_connected
from .connected.running import run_connected
from .drawing import draw_case
from .functions import run_functions
from .running import Disagreement, run_case


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m strom.testing.fuzz", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds (default 100)")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--minutes", type=float, help="stop after so long, whatever --seeds says")
    parser.add_argument(
        "--jobs-every", type=int, default=8, help="every so many seeds whole jobs too; 0: never"
    )
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first failure")
    parser.add_argument("--trace", action="store_true", help="print tracebacks")
    options = parser.parse_args(arguments)
    began, failed, ran = time.monotonic(), [], 0
    for seed in range(options.start, options.start + options.seeds):
        if options.minutes is not None and time.monotonic() - began > 60 * options.minutes:
            break
        case = draw_case(seed)
        every = options.jobs_every
        jobs = every > 0 and (seed % every == 0 or options.seeds == 1)
        ran += 1
        try:
            run_case(case, jobs)
            run_connected(draw_connected(seed), jobs)
            run_functions(seed)
        except Disagreement as error:
            failed.append(seed)
            print(error, flush=True)
            if options.trace:
                traceback.print_exception(error)
            if options.fail_fast:
                break
    took = time.monotonic() - began
    print(f"{ran} seeds from {options.start} in {took:.0f} s; {len(failed)} failed: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    logging.getLogger("strom").setLevel(logging.ERROR)  # crashes are what is asked for
    sys.exit(main())
