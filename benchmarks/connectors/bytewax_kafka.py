"""bytewax's Kafka input into nothing: run by an environment that has bytewax, without strom.

    python bytewax_kafka.py SERVERS TOPIC

Reads the whole topic with two processes of one worker each (threads would share one interpreter
lock), and prints one line of JSON: records, seconds from the first partition opened until both
processes are done, and the CPU seconds that both used meanwhile.
"""

# mypy: ignore-errors
from __future__ import annotations

import json
import multiprocessing
import resource
import socket
import sys
import time
from importlib.metadata import version

from bytewax import operators as op
from bytewax.connectors.kafka import KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main

PROCESSES = 2
BATCH = 10_000
"""Messages asked for at once; the default is 1,000."""

BEGIN = multiprocessing.Value("d", 0.0)
RECORDS = multiprocessing.Value("q", 0)
CPU = multiprocessing.Value("d", 0.0)


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class TimedSource(KafkaSource):
    """Says when the first partition was opened."""

    def build_part(self, step_id, for_part, resume_state):
        with BEGIN.get_lock():
            BEGIN.value = BEGIN.value or time.perf_counter()
        return super().build_part(step_id, for_part, resume_state)


class Counting(StatelessSinkPartition):
    def __init__(self):
        self.records = 0

    def write_batch(self, items):
        self.records += len(items)

    def close(self):
        with RECORDS.get_lock():
            RECORDS.value += self.records


class Nothing(DynamicSink):
    def build(self, step_id, worker_index, worker_count):
        return Counting()


def work(servers, topic, addresses, process):
    flow = Dataflow("read")
    source = TimedSource([servers], [topic], tail=False, batch_size=BATCH)
    op.output("out", op.input("in", flow, source), Nothing())
    used = cpu_s()
    cluster_main(flow, addresses, process, worker_count_per_proc=1)
    with CPU.get_lock():
        CPU.value += cpu_s() - used


def main():
    servers, topic = sys.argv[1:]
    addresses = []
    for _ in range(PROCESSES):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            addresses.append(f"127.0.0.1:{free.getsockname()[1]}")
    processes = [
        multiprocessing.Process(target=work, args=(servers, topic, addresses, number))
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    seconds = time.perf_counter() - BEGIN.value
    if any(process.exitcode for process in processes):
        raise SystemExit(f"exit codes {[process.exitcode for process in processes]}")
    said = {"records": RECORDS.value, "seconds": seconds, "cpu_s": CPU.value}
    print(json.dumps({**said, "version": version("bytewax")}))


if __name__ == "__main__":
    main()
