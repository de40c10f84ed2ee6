"""The exception tree.

StromError
├── ConfigurationError        a setting is missing, contradictory or out of range
├── GraphError                the program describes no runnable graph
├── TypeMismatchError         a value does not fit the declared type
├── SerializationError        a function or value cannot be shipped
├── OperatorError             user or connector code raised inside an operator
├── ConnectorError            a connector cannot read or write what it was pointed at
│   ├── OutputRefusedError        what is there belongs to another job
│   ├── CommitError               a sink cannot publish, and no other try would help
│   └── RetryableCommitError      a sink could not publish now
├── StateError                wrong use of state, or state that cannot be restored
│   └── UnfitStateError           what another job stored does not fit this program
├── CheckpointError           a checkpoint could not be taken
│   ├── CheckpointFormatError     a stored checkpoint is of another version of strom
│   └── CorruptCheckpointError    a stored checkpoint is torn, truncated or altered
│       └── MissingCheckpointError    there is no manifest: it never completed, or was removed
├── FencedError               another job, or another coordinator of this one, has taken over
├── TransportError            a peer went away or spoke nonsense
│   └── AuthenticationError       a peer could not prove that it belongs to the job
├── IllegalTransitionError    a protocol state machine was driven wrongly
├── ResourceError             the cluster cannot give what the job asks for
├── JobFailedError            the job ended in failure
└── JobCancelledError         the job was cancelled
"""

from __future__ import annotations

from .failure_text import SUMMARY_LIMIT, TRACE_LIMIT, cut


class StromError(Exception):
    """Base of every error strom raises on purpose."""

    recoverable: bool = True
    """Whether the job may restart where a task fails of it. Not where another attempt would end the
    same way, or, worse, would not."""

    fenced: bool = False
    """Whether another has taken over what the task writes to. That is final for the coordinator
    that has started the task, and for no later one."""


class ConfigurationError(StromError, ValueError):
    """A setting is missing, contradictory or out of range."""


class GraphError(StromError):
    """The program describes no runnable graph."""


class TypeMismatchError(StromError, TypeError):
    """A value does not fit the declared type."""


class SerializationError(StromError):
    """A function or value cannot be shipped to a task, or back to the client."""

    edge: int | None = None
    """Of a record that could not be sent: the job edge on which it was to travel."""

    module: str | None = None
    """The module that was missing where it was to be read."""


class OperatorError(StromError):
    """User or connector code raised inside an operator.

    `operator` and `subtask` say where; `cause` is the original error as text with its traceback,
    so that the error survives the trip through processes that lack the user's exception class.
    Both texts are cut to what a person reads.
    """

    def __init__(self, operator: str, subtask: int, summary: str, cause: str = "") -> None:
        summary, cause = cut(summary, SUMMARY_LIMIT), cut(cause, TRACE_LIMIT)
        super().__init__(operator, subtask, summary, cause)
        self.operator = operator
        self.subtask = subtask
        self.summary = summary
        self.cause = cause

    def __str__(self) -> str:
        text = f"operator '{self.operator}', subtask {self.subtask}: {self.summary}"
        return f"{text}\n{self.cause}" if self.cause else text


class ConnectorError(StromError):
    """A connector cannot read or write what it was pointed at; the message names the file (or
    topic), the cause, and what to do."""


class OutputRefusedError(ConnectorError):
    """A job must not write where it is to: what is there belongs to another job, or would be there
    twice. The message names both, and says what to do."""

    recoverable = False


class CommitError(ConnectorError):
    """Raised by a sink writer that cannot publish, and knows that neither another try nor another
    attempt of the job would: it fails. The message says why, and what to do."""

    recoverable = False


class RetryableCommitError(ConnectorError):
    """Raised by a sink writer that could not publish now. It will be asked again."""


class StateError(StromError):
    """Wrong use of state, or state that cannot be restored."""


class UnfitStateError(StateError):
    """What another job stored does not fit this program, which has to be changed. The job fails:
    an attempt that began at a checkpoint of its own would not notice any more."""

    recoverable = False


class CheckpointError(StromError):
    """A checkpoint could not be taken."""


class RescaleError(StromError):
    """A running job could not go on at another parallelism, and is as it was; the message says
    why."""


class CheckpointFormatError(CheckpointError):
    """A stored checkpoint has another format than this strom reads; the message names both."""


class CorruptCheckpointError(CheckpointError):
    """A stored checkpoint is torn, truncated or altered; the message names the file."""


class MissingCheckpointError(CorruptCheckpointError):
    """There is no manifest where one was looked for; the message names it."""


class FencedError(StromError):
    """Another job, or another coordinator of the same, has taken over; the message names both. Not
    to be tried again: the other one is right."""

    recoverable = False
    fenced = True


class TransportError(StromError):
    """A peer went away or spoke nonsense."""


class AuthenticationError(TransportError):
    """A peer could not prove that it belongs to the job."""


class IllegalTransitionError(StromError):
    """A protocol state machine was driven wrongly; the message holds the history that led there."""


class ResourceError(StromError):
    """The cluster cannot give what the job asks for."""


class JobFailedError(StromError):
    """The job ended in failure. `__cause__` or the message holds the first cause."""


class JobCancelledError(StromError):
    """The job was cancelled."""
