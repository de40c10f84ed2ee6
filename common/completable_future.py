"""The names of `pyflink.common.completable_future`."""

from ..core.answered import CompletableFuture as CompletableFuture
