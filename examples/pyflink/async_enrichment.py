"""Orders with what a slow service knows of their customers: many questions at once, asked again
when the service fails, and given up with a default when it takes too long."""

from __future__ import annotations

import asyncio
from typing import Any

from strom.common import Time, Types
from strom.datastream import (
    AsyncDataStream,
    AsyncFunction,
    DataStream,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from strom.datastream.async_retry_strategies import FixedDelayRetryStrategy

ORDER = Types.TUPLE([Types.INT(), Types.STRING()])
ENRICHED = Types.TUPLE([Types.INT(), Types.STRING(), Types.STRING()])


class Service:
    """Fails at the first question about each customer. Knows nothing of one, and says so late."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    async def country(self, customer: str) -> str:
        await asyncio.sleep(0.001)
        if customer not in self.asked:
            self.asked.add(customer)
            raise ConnectionError(f"no answer about {customer}")
        if customer == "customer 3":
            await asyncio.sleep(3600)
        return "NO" if int(customer[-1]) % 2 else "SE"


class Enrich(AsyncFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.service = Service()

    async def async_invoke(self, value: Any) -> list[tuple[int, str, str]]:
        number, customer = value
        return [(number, customer, await self.service.country(customer))]

    def timeout(self, value: Any) -> list[tuple[int, str, str]]:
        number, customer = value
        return [(number, customer, "unknown")]


def failed(error: Exception) -> bool:
    return isinstance(error, ConnectionError)


def enriched(env: StreamExecutionEnvironment) -> DataStream:
    orders = [(n, f"customer {n % 5}") for n in range(40)]
    retry = FixedDelayRetryStrategy(
        max_attempts=3, backoff_time_millis=1, result_predicate=None, exception_predicate=failed
    )
    return AsyncDataStream.unordered_wait_with_retry(
        env.from_collection(orders, ORDER), Enrich(), Time.milliseconds(500), retry, 100, ENRICHED
    )


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    enriched(env).print()
    env.execute("enriched orders")


if __name__ == "__main__":
    main()
