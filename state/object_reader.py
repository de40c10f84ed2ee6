"""Pickles of objects with fields, read into the classes as they are now.

An `ObjectReader` compares the fields that `stored_objects` wrote with those of the class. Pickles
that hold what the class's own way made of it are compared as far as they tell.
"""

from __future__ import annotations

import copy
import dataclasses
import io
import pickle
import sys
from collections.abc import Callable
from typing import Any, cast

from .migration import NO_MIGRATION, StateMigration
from .object_fields import Fields, fields_of, refuse
from .stored_objects import NAMES, named_tuple, pickled_by_value, put_fields, set_fields

_PLAIN: dict[str, type | tuple[type, ...]] = {
    "int": int,
    "float": (float, int),
    "str": str,
    "bool": bool,
    "bytes": bytes,
}

_WRITER = named_tuple.__module__
_BY_VALUE = "cloudpickle.cloudpickle"


class ObjectReader:
    """Reads pickles of one state into the classes as they are now.

    what: names the state in errors. migration: what the program says of fields. classes: those that
    the state is declared with; a class that was pickled by value is found among them, else in the
    main program."""

    def __init__(
        self,
        what: str,
        migration: StateMigration = NO_MIGRATION,
        classes: tuple[type, ...] = (),
        fixed: bool = False,
    ) -> None:
        """`fixed`: nothing may change, for keys."""
        self._what = what
        self._migration = migration
        self._classes = classes
        self._fixed = fixed
        self._found: dict[tuple[str, str], Any] = {}
        """What pickles name, by module and name."""
        self._real: dict[type, type] = {}
        """The class that a stand-in stands for."""
        self._stand_ins: dict[type, type] = {}
        self._made: list[Any] = []
        """Objects of stand-ins in the value that is being read."""
        self._changed = False
        """Whether an object in that value had other fields than its class has."""

    def loads(self, data: bytes) -> Any:
        """The value of a pickle. StateError if it does not fit the classes."""
        if NAMES not in data:
            return pickle.loads(data)  # plain values
        value = self._load(data)
        if self._changed:
            # what is in sets and dictionaries was hashed before it had all its fields
            value = self._load(pickled_by_value(value))
        return value

    def _load(self, data: bytes) -> Any:
        self._made, self._changed = [], False
        value = _Unpickler(io.BytesIO(data), self._find).load()
        for one in self._made:
            if type(one) in self._real:  # it had nothing to be set
                self.fill(one, None, {})
        return value

    def _find(self, module: str, name: str, default: Callable[[str, str], Any]) -> Any:
        key = (module, name)
        if key not in self._found:
            self._found[key] = self._resolved(module, name, default)
        return self._found[key]

    def _resolved(self, module: str, name: str, default: Callable[[str, str], Any]) -> Any:
        if module == _WRITER and name == named_tuple.__name__:
            return self._named_tuple
        if module == _WRITER and name == set_fields.__name__:
            return lambda value, state: self.fill(value, *state)
        if module == _BY_VALUE and name == "_make_skeleton_class":
            return lambda *given: self._by_value(default(module, name), *given)
        if module == _BY_VALUE and name == "_class_setstate":
            return lambda kind, state: self._set_class(default(module, name), kind, state)
        found = default(module, name)
        return self._stand_in(found) if isinstance(found, type) else found

    # --- classes that were pickled by value -----------------------------------------------------

    def _by_value(self, make: Callable[..., type], *given: Any) -> type:
        """The program's own class in place of the one that was pickled with its values."""
        _, name, _, parts, known, *_ = given
        module = parts.get("__module__") if isinstance(parts, dict) else None
        own = self._own(name, module, known)
        return make(*given) if own is None else self._stand_in(own)

    def _own(self, name: str, module: str | None, known: str | None) -> type | None:
        """Of those the state is declared with; else the module's of that name; else the only one
        of that name that came here with the program. `known`: cloudpickle's id of the class."""
        for kind in self._classes:
            if kind.__name__ == name:
                return kind
        found = getattr(sys.modules.get(module or "__main__"), name, None)
        if isinstance(found, type) and fields_of(found) is not None:
            return found
        import cloudpickle.cloudpickle

        tracked = getattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", {})
        if known in tracked:
            return None  # it is the program's, or was in this process when it was stored
        same = {
            kind
            for kind in list(tracked.values())
            if kind.__qualname__ == name and kind.__module__ == module
        }
        return same.pop() if len(same) == 1 else None

    def _set_class(self, set_state: Callable[..., Any], kind: type, state: Any) -> type:
        if kind in self._real or kind in self._stand_ins:
            return kind
        set_state(kind, state)
        return kind

    # --- objects --------------------------------------------------------------------------------

    def _stand_in(self, kind: type) -> type:
        """A class whose objects ask this reader when they are given their fields, and become the
        class's; the class itself if it has none."""
        if fields_of(kind) is None:
            return kind
        if kind in self._stand_ins:
            return self._stand_ins[kind]
        if hasattr(kind.__init_subclass__, "__func__"):
            self._stand_ins[kind] = kind  # it counts its subclasses; set_fields asks all the same
            return kind
        reader = self

        def new(cls: type, *values: Any) -> Any:
            made = kind.__new__(cls, *values)
            reader._made.append(made)
            return made

        def new_tuple(cls: type, *values: Any) -> Any:
            return reader._named_tuple(kind, None, values)

        def set_state(self: Any, state: Any) -> None:
            reader.fill(self, None, _as_dict(kind, state, reader))

        members: dict[str, Any] = {"__slots__": (), "__module__": kind.__module__}
        if issubclass(kind, tuple):
            members["__new__"] = new_tuple
        else:
            members["__new__"], members["__setstate__"] = new, set_state
        try:
            made = type(kind)(kind.__name__, (kind,), members)
        except Exception:
            made = kind  # it cannot be derived from; set_fields still looks at its objects
        else:
            self._real[made] = kind
        self._stand_ins[kind] = made
        return made

    def fill(self, value: Any, stored: Fields | None, held: dict[str, Any]) -> None:
        """Give an object its fields. `stored`: those of the class it was written of, None where the
        pickle does not tell."""
        kind = self._real.get(type(value), type(value))
        if kind is not type(value):
            object.__setattr__(value, "__class__", kind)
        put_fields(value, self.fitted(kind, stored, held))

    def _named_tuple(self, kind: type, stored: Fields | None, values: tuple[Any, ...]) -> Any:
        kind = self._real.get(kind, kind)
        known = fields_of(kind)
        if known is None:
            return kind(*values)
        if stored is None:
            if len(values) != len(known):
                old = {f"field {at}": type(value).__name__ for at, value in enumerate(values)}
                refuse(self._what, kind, old, "it was stored without the names of its fields")
            stored = known
        made = self.fitted(kind, stored, dict(zip(stored, values, strict=True)))
        return kind._make([made[name] for name in known])  # type: ignore[attr-defined]

    def fitted(self, kind: type, stored: Fields | None, held: dict[str, Any]) -> dict[str, Any]:
        """The fields of an object of `kind` that was stored with these. StateError if the program
        has to say more."""
        known = fields_of(kind)
        if known is None or stored == known:
            return held
        migration, old = self._migration, stored or {n: type(v).__name__ for n, v in held.items()}
        made: dict[str, Any] = {}
        for name, value in held.items():
            target = name if name in known else migration.new_name(name)
            if target in made or (target != name and target in held):
                refuse(self._what, kind, old, f"'{name}' and '{target}' are both there")
            made[target] = value
        for name in migration.drop:
            if name not in known:
                made.pop(name, None)
        stored_names = {n if n in known else migration.new_name(n) for n in old}
        lacking = [name for name in known if name not in made and name not in stored_names]
        gone = sorted((stored_names & set(made)) - set(known)) if stored or lacking else []
        if self._fixed and (lacking or gone or (stored and list(stored) != list(known))):
            refuse(self._what, kind, old, "a key's class cannot change, for its hash would")
        if gone:
            refuse(self._what, kind, old, f"{gone} are no fields any more")
        for name in lacking:
            made[name] = self._default(kind, name, old)
        for name, text in known.items():
            before = old.get(name, text) if name in old else text
            plain = _PLAIN.get(text)
            if name in made and plain and before != text:
                value = made[name]
                fits = isinstance(value, plain) and isinstance(value, bool) == (text == "bool")
                if not fits:
                    refuse(self._what, kind, old, f"'{name}' is {value!r}")
        self._changed = self._changed or set(made) != set(held)
        return made

    def _default(self, kind: type, name: str, old: Fields) -> Any:
        if name in self._migration.defaults:
            return copy.deepcopy(self._migration.defaults[name])
        if issubclass(kind, tuple):
            defaults = kind._field_defaults  # type: ignore[attr-defined]
            if name in defaults:
                return defaults[name]
        else:
            field = next(one for one in dataclasses.fields(cast(Any, kind)) if one.name == name)
            if field.default is not dataclasses.MISSING:
                return field.default
            if field.default_factory is not dataclasses.MISSING:
                return field.default_factory()
        refuse(self._what, kind, old, f"'{name}' is new and has no default")


class _Unpickler(pickle.Unpickler):
    def __init__(self, source: io.BytesIO, find: Callable[..., Any]) -> None:
        super().__init__(source)
        self._find = find

    def find_class(self, module: str, name: str) -> Any:
        return self._find(module, name, super().find_class)


def _as_dict(kind: type, state: Any, reader: ObjectReader) -> dict[str, Any]:
    """What the class's own way of pickling gives an object to be set."""
    if isinstance(state, dict):
        return state
    if isinstance(state, tuple) and len(state) == 2:
        return {**(state[0] or {}), **(state[1] or {})}
    names = list(fields_of(kind) or {})
    if len(state) != len(names):
        old = {f"field {at}": type(value).__name__ for at, value in enumerate(state)}
        refuse(reader._what, kind, old, "it was stored without the names of its fields")
    return dict(zip(names, state, strict=True))
