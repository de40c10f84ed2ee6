"""A plain producer at a fixed rate, in a process of its own.

    python paced_producer.py SERVERS TOPIC PARTITIONS RATE COUNT SIZE

Each value begins with the time (ns since 1970, 19 digits) at which the record was handed to the
client.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Producer

TICK_S = 0.002


def main() -> None:
    servers, topic = sys.argv[1:3]
    partitions, rate, count, size = (int(word) for word in sys.argv[3:])
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1})
    start, sent = time.monotonic(), 0
    while sent < count:
        due = min(count, int((time.monotonic() - start) * rate) + 1)
        while sent < due:
            value = b"%-*d" % (size, time.time_ns())
            producer.produce(topic, value, partition=sent % partitions)
            sent += 1
        producer.poll(0)
        time.sleep(TICK_S)
    if producer.flush(60.0):
        raise SystemExit("not all records were acknowledged")


if __name__ == "__main__":
    main()
