"""The settings of one operator, shared by streams and sinks. All return the object itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, Self

from ...core.config import SlotResources
from ...core.errors import ConfigurationError, GraphError
from ...engine.graph.transformation import Transformation
from ...state.migration import StateMigration
from ..configuration.settings import to_buffer_timeout
from ..configuration.slots import SlotSharingGroup
from ..configuration.state_backends import operators_backend
from ..configuration.storage import StateBackend
from ..dead_letters import DEAD_LETTERS, LETTER, DeadLetters
from ..functions.validation import require_positive, require_text
from ..jobs.environment import Environment
from ..jobs.previews import sketched
from ..types.durations import Interval

_HASH: Final = re.compile(r"[0-9a-fA-F]{16}|[0-9a-fA-F]{32}")


class OperatorSettings:
    """`operator`: the operator this stream or sink is the direct result of, None for streams that
    are a view (keyed, partitioned, united, side output): these have no settings."""

    def __init__(self, operator: Transformation | None) -> None:
        self._operator = operator

    def name(self, name: str) -> Self:
        """The name in messages, metrics and `explain()`; not part of the operator's identity."""
        self._settable("name").name = require_text("name", "name", name)
        return self

    def get_name(self) -> str:
        return self._settable("get_name").name

    def uid(self, uid: str) -> Self:
        """The operator's identity: its state is found under it when the program has changed."""
        self._settable("uid").uid = require_text("uid", "uid", uid)
        return self

    def set_uid_hash(self, uid_hash: str) -> Self:
        """The operator's id as a checkpoint has it: 16 hexadecimal digits, or Flink's 32. For an
        operator whose state cannot be found otherwise; a `uid` beside it is not looked at."""
        operator = self._settable("set_uid_hash")
        if not isinstance(uid_hash, str) or not _HASH.fullmatch(uid_hash):
            raise ConfigurationError(
                f"set_uid_hash: operator '{operator.name}' needs 16 or 32 hexadecimal digits, got "
                f"{uid_hash!r}"
            )
        operator.uid_hash = uid_hash.lower()
        return self

    def migrate_state(
        self,
        state: str | None = None,
        *,
        rename: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
        drop: Iterable[str] = (),
        types: Mapping[str, Any] | None = None,
    ) -> Self:
        """What has become of the fields of the records, or of the values, in the operator's state
        since an earlier program stored it. Needed where a job is restored, and harmless afterwards.
        A state, or an operator, that another job's checkpoint does not hold is warned of.

        state: the state's name; None: all that are not named. rename: new names by old ones.
        defaults: what new fields are in old records; they come last. drop: old fields that are let
        go. types: new types of columns by their new names, which hold each old value exactly."""
        operator = self._settable("migrate_state")
        who = f"migrate_state of operator '{operator.name}'"
        if state is not None:
            require_text("migrate_state", "state", state)
        if state in operator.migrations:
            raise ConfigurationError(f"{who}: it is called twice for the same state: call it once")
        operator.migrations[state] = StateMigration.of(who, rename, defaults, drop, types)
        return self

    def set_description(self, description: str) -> Self:
        """Text for `explain()`."""
        self._settable("set_description").description = description
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        operator = self._settable("set_parallelism")
        require_positive("set_parallelism", "parallelism", parallelism)
        if operator.fixed_parallelism and parallelism != operator.parallelism:
            raise GraphError(
                f"operator '{operator.name}' works only with parallelism {operator.parallelism}, "
                f"not {parallelism}"
            )
        operator.parallelism = parallelism
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """The number of key groups: the most the operator can ever be rescaled to."""
        operator = self._settable("set_max_parallelism")
        operator.max_parallelism = require_positive(
            "set_max_parallelism", "max_parallelism", max_parallelism, 32768
        )
        return self

    def force_non_parallel(self) -> Self:
        """One subtask, for good."""
        operator = self._settable("force_non_parallel")
        operator.parallelism = 1
        operator.fixed_parallelism = True
        return self

    def start_new_chain(self) -> Self:
        """Do not run in one task with the operator before it."""
        operator = self._settable("start_new_chain")
        if operator.chaining != "never":
            operator.chaining = "head"
        return self

    def disable_chaining(self) -> Self:
        """Run alone in a task."""
        self._settable("disable_chaining").chaining = "never"
        return self

    def set_buffer_timeout(self, timeout_millis: Interval) -> Self:
        """How long what the operator sends may wait for its buffer to fill (timedelta or ms), in
        place of the environment's; 0: not at all, -1: until it is full."""
        operator = self._settable("set_buffer_timeout")
        operator.buffer_timeout = to_buffer_timeout(timeout_millis)
        return self

    def set_state_backend(self, state_backend: StateBackend | str) -> Self:
        """Where the operator keeps its keyed state, in place of what the job says: a
        `HashMapStateBackend`, an `EmbeddedRocksDBStateBackend`, or the name of one. The job may go
        on from a checkpoint of either."""
        operator = self._settable("set_state_backend")
        who = f"set_state_backend of operator '{operator.name}'"
        if not operator.spec.keeps_keyed_state:
            raise ConfigurationError(
                f"{who}: it keeps no keyed state: call it right behind an operator that does"
            )
        operator.state_backend = operators_backend(who, state_backend)
        return self

    def on_error(self, policy: DeadLetters | Literal["fail"]) -> Self:
        """What becomes of a record for which the operator's function raises. "fail", as without
        this: the job fails. `dead_letters(limit=...)`: the record gives nothing and is put aside;
        `get_dead_letters()` is the stream of those. ConfigurationError for operators that cannot
        do so."""
        if self._operator is None:
            raise GraphError(
                "on_error() says of an operator what becomes of records that make its function "
                "raise, but this stream is only a view of other streams (keyed, partitioned, "
                "united or side output): call it right behind the operator. What a key function "
                "raises fails the job: make the key in a map that has on_error, and key by that"
            )
        operator = self._operator
        who = f"on_error of operator '{operator.name}'"
        if policy == "fail":
            operator.spec = replace(operator.spec, on_error=None)
            return self
        if not isinstance(policy, DeadLetters):
            raise ConfigurationError(
                f'{who}: give dead_letters(limit=...) or "fail", not {policy!r}'
            )
        reason = operator.spec.no_letters
        if reason is not None:
            raise ConfigurationError(f"{who}: {reason}")
        sides = dict(operator.spec.side_types) | {DEAD_LETTERS: LETTER}
        operator.spec = replace(operator.spec, on_error=policy, side_types=tuple(sides.items()))
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        """Subtasks share a slot only within a group; operators behind this one inherit it. With
        resources in the group each of its slots takes these."""
        operator = self._settable("slot_sharing_group")
        if isinstance(slot_sharing_group, SlotSharingGroup):
            resources = slot_sharing_group.resources()
            operator.slot_resources = None if resources == SlotResources() else resources
            slot_sharing_group = slot_sharing_group.name
        operator.slot_sharing_group = require_text(
            "slot_sharing_group", "slot sharing group", slot_sharing_group
        )
        return self

    def _settable(self, method: str) -> Transformation:
        if self._operator is None:
            raise GraphError(
                f"{method}() sets an operator's property, but this stream is only a view of other "
                "streams (keyed, partitioned, united or side output); call it right behind the "
                "operator"
            )
        return self._operator


class DataStreamSink(OperatorSettings):
    """A sink operator."""

    def __init__(self, operator: Transformation, env: Environment) -> None:
        super().__init__(operator)
        self.operator = operator
        self._env = env

    def _repr_html_(self) -> str:
        """The job graph up to this sink."""
        return sketched(self._env, [self.operator])
