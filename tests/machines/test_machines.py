"""A job over three machines with a network between them that is late, and is cut."""

from __future__ import annotations

import subprocess
import textwrap
import time
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from chaos_kit import PATIENCE, until
from strom.testing.machines.network import Network, missing
from strom.testing.machines.ray_nodes import RayMachines

LACKING = missing()

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(LACKING is not None, reason=f"machines of its own: there is no {LACKING}"),
]

KEYS = 50
BLOCK = 7
SPLITS = 3

PATIENT_RAY = {
    "RAY_health_check_failure_threshold": "100",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
}
"""A machine that is cut off stays Ray's: it has none in its place. By itself Ray gives one up after
about a minute, and here the job may take that long to notice."""

PROGRAM = """
    import sys
    import strom
    from strom.connectors.datagen import DataGenSource
    from strom.connectors.files import FileSink

    folder, keys, block, splits, parallelism = sys.argv[1], *map(int, sys.argv[2:6])

    def numbers(start, size):
        return [(n % keys, n) for n in range(start, start + size)]

    class Nth(strom.KeyedProcessFunction):
        def open(self, context):
            self.seen = context.get_state(strom.ValueStateDescriptor("seen", strom.Types.LONG()))

        def process_element(self, value, context):
            nth = (self.seen.value() or 0) + 1
            self.seen.update(nth)
            yield strom.Row(key=value[0], n=value[1], nth=nth)

    conf = strom.Configuration.from_dict({
        "execution.checkpointing.interval": "500 ms",
        "execution.checkpointing.dir": folder + "/checkpoints",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "100",
        "restart-strategy.fixed-delay.delay": "200 ms",
        **dict(word.split("=") for word in sys.argv[6:]),
    })
    env = strom.StreamExecutionEnvironment.get_execution_environment(conf, host="ray")
    env.set_parallelism(parallelism)
    source = DataGenSource(numbers, rate=600.0, block=block, splits=splits)
    schema = strom.Types.ROW_NAMED(["key", "n", "nth"], [strom.Types.LONG()] * 3)
    stream = env.from_source(source, source_name="numbers").key_by(lambda value: value[0])
    counted = stream.process(Nth()).name("counted")
    counted.sink_to(FileSink(folder + "/out", schema=schema))
    job = env.execute_async("over machines")
    print("told submitted", flush=True)
    for line in sys.stdin:
        if line == "restarts\\n":
            print("told", job.metrics()["restarts"], flush=True)
        elif line.startswith("rescale"):
            made = job.rescale({"counted": int(line.split()[1])}).result()
            print("told", made.stopped_tasks, made.held_tasks, flush=True)
        else:
            job.stop_with_savepoint(True, folder + "/savepoint").result()
            print("told", job.get_job_status().value, flush=True)
"""


class Job:
    """An endless one, of a program on the first machine."""

    def __init__(
        self, cluster: RayMachines, folder: Path, *options: str, parallelism: int = SPLITS
    ) -> None:
        self.folder = folder
        script = folder / "program.py"
        script.write_text(textwrap.dedent(PROGRAM))
        numbers = (KEYS, BLOCK, SPLITS, parallelism)
        words = [str(folder), *map(str, numbers), *options]
        self.process = cluster.program(
            cluster.network.machines[0],
            [str(script), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "errors").open("w"),
            text=True,
        )
        assert self._line() == "submitted"

    def _line(self) -> str:
        """What the program tells; Ray says something, too, now and then."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("told "):
                return str(line).removeprefix("told ").strip()
        raise AssertionError((self.folder / "errors").read_text())

    def _ask(self, question: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{question}\n")
        self.process.stdin.flush()
        return self._line()

    def restarts(self) -> int:
        return int(self._ask("restarts"))

    def rescale(self, parallelism: int) -> tuple[int, int]:
        """Of what counts; how many tasks stopped for it, and how many stood still."""
        stopped, held = self._ask(f"rescale {parallelism}").split()
        return int(stopped), int(held)

    def newest(self) -> int:
        """The number of the newest complete checkpoint."""
        manifests = self.folder.glob("checkpoints/*/chk-*/manifest.json")
        return max((int(path.parent.name.removeprefix("chk-")) for path in manifests), default=0)

    def goes_on(self) -> None:
        """Wait for a checkpoint that began after now."""
        now = self.newest()
        until(lambda: self.newest() >= now + 2, "checkpoints", 60.0)

    def stop(self) -> None:
        """Drained: all that was read has been written then."""
        assert self._ask("stop") == "FINISHED"
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60 * PATIENCE) == 0

    def check(self) -> None:
        """Of each split a beginning was read; every record once, and counted once."""
        rows = ds.dataset(self.folder / "out", format="parquet").to_table().to_pylist()
        assert len(rows) > SPLITS * BLOCK
        counted: dict[int, list[int]] = {}
        read: dict[int, list[int]] = {}
        for row in rows:
            counted.setdefault(row["key"], []).append(row["nth"])
            read.setdefault(row["n"] // BLOCK % SPLITS, []).append(row["n"])
        for nths in counted.values():
            assert sorted(nths) == list(range(1, len(nths) + 1))
        for split, numbers in read.items():
            blocks = range(split, max(numbers) // BLOCK + 1, SPLITS)
            whole = [n for b in blocks for n in range(b * BLOCK, (b + 1) * BLOCK)]
            assert sorted(numbers) == whole[: len(numbers)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path


def test_a_cut_is_waited_out_or_found_and_the_output_is_exact(folder: Path) -> None:
    """20 ms from each machine to another, encrypted, with addresses that nobody has set."""
    with (
        Network(3, late_s=0.02) as network,
        RayMachines(network, [1, 1, 1], PATIENT_RAY) as cluster,
    ):
        encrypted = "security.ssl.internal.enabled=true"
        job = Job(cluster, folder, encrypted, "heartbeat.interval=2s", "heartbeat.timeout=15s")
        job.goes_on()
        before = job.newest()
        network.cut(2)
        time.sleep(5)
        network.mend(2)
        assert job.newest() <= before + 2  # those that were on their way: it was a cut
        job.goes_on()
        assert job.restarts() == 0
        network.cut(2)
        until(lambda: job.restarts(), "the failure", 60.0)
        network.mend(2)
        job.goes_on()
        assert job.restarts() >= 1
        job.stop()
    job.check()


def test_readers_stay_where_they_are_when_the_job_gets_a_second_machine(folder: Path) -> None:
    """Which they listened to nobody outside for before; and when it has one again."""
    with Network(2) as network, RayMachines(network, [2, 1]) as cluster:
        job = Job(cluster, folder, parallelism=2)
        job.goes_on()
        assert job.rescale(3) == (2, 2)
        job.goes_on()
        assert job.rescale(2) == (3, 2)
        job.goes_on()
        assert job.restarts() == 0
        job.stop()
    job.check()


@pytest.mark.soak
def test_a_machine_that_is_given_up_is_replaced(folder: Path) -> None:
    """Cut off until Ray itself takes it for dead; then it comes back as a new node."""
    with Network(3) as network, RayMachines(network, [1, 1, 1]) as cluster:
        job = Job(cluster, folder)
        job.goes_on()
        network.cut(1)
        time.sleep(90)
        network.mend(1)
        cluster.start_node(1)
        job.goes_on()
        assert job.restarts() >= 1
        job.stop()
    job.check()
