"""`python -m strom.testing.simulation`: random jobs under random faults.

Prints a line of JSON; each seed that failed before it, with its case, which `--replay` runs again.
"""

from __future__ import annotations

import argparse
import json
import sys

from .case import parse
from .draws import drawn
from .mutations import MUTATIONS, catch
from .running_seeds import failure_of, run_seeds, undisturbed
from .shrinking import shrunk


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m strom.testing.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first one")
    parser.add_argument("--time-s", type=float, help="begin none after so many seconds")
    parser.add_argument("-j", "--processes", type=int, default=1, help="side by side (default 1)")
    parser.add_argument("--json", action="store_true", help="only the line of JSON")
    parser.add_argument("--replay", metavar="CASE", help="one case, as it was printed")
    parser.add_argument("--shrink", action="store_true", help="look for a shorter case that fails")
    parser.add_argument(
        "--mutations", action="store_true", help="break the engine in each way known; all are found"
    )
    options = parser.parse_args(arguments)
    if options.mutations:
        return _mutate(options.first, options.seeds, options.json)
    if options.replay is not None:
        return _replay(options.replay, options.shrink)
    totals = run_seeds(options.first, options.seeds, options.time_s, options.processes)
    for case, why in totals.violations if not options.json else ():
        print(f"{case}\n    {why}")
        if options.shrink:
            with undisturbed():
                print(f"    shorter: {shrunk(parse(case), failure_of)}")
    print(json.dumps(totals.as_json(options.processes)))
    return 1 if totals.violations else 0


def _replay(text: str, shrink: bool) -> int:
    case = parse(text)
    with undisturbed():
        why = failure_of(case)
        if why is not None and shrink:
            print(f"shorter: {shrunk(case, failure_of)}")
    print("nothing went wrong" if why is None else why)
    return 0 if why is None else 1


def _mutate(first: int, seeds: int, as_json: bool) -> int:
    found = {name: catch(name, map(drawn, range(first, first + seeds))) for name in MUTATIONS}
    if as_json:
        print(json.dumps({name: at and at.case.seed for name, at in found.items()}))
    else:
        for name, at in found.items():
            said = "not caught" if at is None else f"seed {at.case.seed}: {at.why[:100]}"
            print(f"{name:32} {said}")
    return 1 if None in found.values() else 0


if __name__ == "__main__":
    sys.exit(main())
