"""Programs with PyFlink's names give what PyFlink gave, to the letter: values, types, order.

`results.json` is what real PyFlink made of the same files, `strom` replaced by `pyflink`;
`scripts/record_pyflink.py` records it anew.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import pytest
import strom
from strom.engine.hosts.simulator import SimulatorHost

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
try:
    from run_programs import Program, programs
finally:
    sys.path.remove(str(HERE))

EXAMPLES = Path(strom.__file__).parent / "examples" / "pyflink"
FOUND = [*programs(HERE / "programs", "conformance"), *programs(EXAMPLES, "conformance")]
RECORDED: dict[str, dict[str, list[str]]] = json.loads((HERE / "results.json").read_text("utf-8"))


def environment(waits: bool) -> strom.StreamExecutionEnvironment:
    """What waits runs under the simulator's clock."""
    host = SimulatorHost() if waits else "local"
    env = strom.StreamExecutionEnvironment.get_execution_environment(host=host)
    return env.set_parallelism(1)


def test_every_program_is_recorded() -> None:
    assert sorted(RECORDED) == sorted(program.name for program in FOUND)
    assert not [name for name, found in RECORDED.items() if "error" in found]


@pytest.mark.parametrize("program", FOUND, ids=[program.name for program in FOUND])
def test_it_gives_what_pyflink_gave(program: Program) -> None:
    assert program.outputs(partial(environment, program.waits)) == RECORDED[program.name]
