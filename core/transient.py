"""Which errors of a storage, or of what a sink writes to, are worth another try. The one place that
says so.

    tried again   timeouts; connections refused, reset or broken; throttling and overload; what HTTP
                  calls 408, 425, 429, 500, 502, 503, 504
    not           all else: permissions, missing files and buckets, a full disk, wrong arguments

Filesystems of cloud vendors raise classes of their own, which are not imported for this: they are
told by the names of their classes, by the HTTP status they carry, by the vendor's error code, or
by the error that they were made of.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any, Final

_ERRNO: Final = frozenset(
    {
        errno.EAGAIN,
        errno.EINTR,
        errno.EBUSY,  # throttled, says s3fs
        errno.ETIMEDOUT,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EPIPE,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EREMOTEIO,  # 500, says s3fs
    }
)

_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504})

_CODES: Final = frozenset(
    {
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "TooManyRequests",
        "InternalError",
        "ServiceUnavailable",
        "ServerBusy",
        "OperationTimedOut",
    }
)
"""Of S3 and Azure."""

_NAMES: Final = frozenset(
    {
        # aiohttp
        "ClientConnectionError",
        "ClientPayloadError",
        "ServerTimeoutError",
        # botocore
        "ConnectionClosedError",
        "ConnectTimeoutError",
        "EndpointConnectionError",
        "HTTPClientError",
        "ReadTimeoutError",
        "ResponseStreamingError",
        # requests, urllib3
        "ChunkedEncodingError",
        "ProtocolError",
        "Timeout",
        # azure
        "IncompleteReadError",
        "ServiceRequestError",
        "ServiceResponseError",
        # google
        "TransportError",
        "RetryError",
        # fsspec
        "FSTimeoutError",
    }
)
"""Of classes, and of what these are derived from."""

_MOST_CAUSES: Final = 8


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed a little later.

    >>> is_transient(ConnectionResetError("by peer")), is_transient(PermissionError("not yours"))
    (True, False)
    """
    return any(_is_transient(one) for one in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it was raised from. One that says for itself that it is final ends it:
    a missing file is missing, whatever the reason that it was looked for."""
    found: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if found is None or isinstance(found, (FileNotFoundError, PermissionError)):
            return
        yield found
        found = found.__cause__


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, (TimeoutError, ConnectionError)):
        return True
    if isinstance(error, OSError) and error.errno in _ERRNO:
        return True
    if any(kind.__name__ in _NAMES for kind in type(error).__mro__):
        return True
    return any(code in _CODES or code in _STATUS for code in status_codes(error))


def status_codes(error: BaseException) -> Iterator[str | int]:
    """What a server has said, as far as the error knows: names of codes, and numbers of HTTP."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore.exceptions.ClientError
        about: Any = response.get("Error") or {}
        meta: Any = response.get("ResponseMetadata") or {}
        told: tuple[Any, ...] = (about.get("Code"), meta.get("HTTPStatusCode"))
    else:
        named = (_status(error, name) for name in ("status", "status_code", "code"))
        told = (getattr(error, "error_code", None), *named)  # azure has both
    yield from (code for code in told if isinstance(code, (str, int)))


def _status(error: BaseException, name: str) -> int | None:
    value = getattr(error, name, None)
    try:
        return None if value is None or callable(value) else int(value)
    except (TypeError, ValueError):
        return None
