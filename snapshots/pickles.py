"""What is in a pickle, without running any of it.

A pickle is a program: `pickle.loads` of a file that somebody else could write is running their
code. This reads the same opcodes and builds a description (`descriptions`). Nothing is imported and
nothing is called, but for constructors of dates, zones, decimals and UUIDs.
"""

from __future__ import annotations

import datetime as dt
import pickletools
import re
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from .descriptions import Elements, Mapped, Name, Thing, UnreadableError, text


def described(data: bytes) -> Any:
    """The value in a pickle as plain values, `Mapped`, `Elements`, `Thing` and `Name`.

    UnreadableError, and no other error, if it cannot be read."""
    try:
        return _Machine().run(data)
    except UnreadableError:
        raise
    except Exception as error:  # whatever damage makes of opcodes and their arguments
        raise UnreadableError(f"{type(error).__name__}: {error}") from error


def are_pickles(values: Sequence[bytes | None]) -> bool:
    """Whether there are such values, and each is a pickle to its last byte, as a snapshot holds
    them: bytes that are not only begin like one now and then. None is no pickle."""
    return bool(values) and all(one is not None and _is_pickle(one) for one in set(values))


def _is_pickle(data: bytes) -> bool:
    if data[:1] != b"\x80":
        return False
    try:
        described(data)
        ends = [at for opcode, _, at in pickletools.genops(data) if opcode.name == "STOP"]
    except (UnreadableError, ValueError):
        return False
    return ends == [len(data) - 1]


def text_of(data: bytes) -> str:
    """The same of the value in a pickle."""
    try:
        return text(described(data))
    except UnreadableError as error:
        return f"<{len(data)} bytes that are no readable pickle: {error}>"


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(data):
            name = opcode.name
            if name == "STOP":
                (value,) = self.stack
                return value
            if name in _CONSTANTS:
                self.stack.append(_CONSTANTS[name]())
            elif name in _LITERALS:
                self.stack.append(argument)
            elif name not in _IGNORED:
                step = _STEPS.get(name)
                if step is None:
                    raise UnreadableError(f"opcode {name}")
                step(self, argument)
        raise UnreadableError("it has no end")

    def marked(self) -> list[Any]:
        """What lies above the last mark, both removed."""
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise UnreadableError("a mark is missing")
        found = self.stack[at + 1 :]
        del self.stack[at:]
        return found

    def top(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise UnreadableError("the stack is empty")
        found = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return found

    def tuple_of(self, count: int) -> None:
        self.stack.append(tuple(self.top(count)))

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(items)
        elif isinstance(target, Elements):
            target.items.extend(items)
        elif isinstance(target, Thing):
            target.fields.extend(("[]", item) for item in items)
        else:
            raise UnreadableError(f"items for a {type(target).__name__}")

    def put_items(self, items: list[Any]) -> None:
        pairs = list(zip(items[::2], items[1::2], strict=True))
        target = self.stack[-1]
        if isinstance(target, Mapped):
            target.items.extend(pairs)
        elif isinstance(target, Thing):
            target.fields.extend((text(key), value) for key, value in pairs)
        else:
            raise UnreadableError(f"entries for a {type(target).__name__}")

    def name(self) -> None:
        module, name = self.top(2)
        self.stack.append(Name(f"{module}.{name}"))

    def call(self) -> None:
        function, args = self.top(2)
        self.stack.append(_made(function, args))

    def call_with(self) -> None:
        function, args, keywords = self.top(3)
        made = _made(function, args)
        if isinstance(made, Thing) and isinstance(keywords, Mapped):
            made.fields.extend((str(key), value) for key, value in keywords.items)
        self.stack.append(made)

    def build(self) -> None:
        state = self.top(1)[0]
        target = self.stack[-1]
        if isinstance(target, Thing):
            target.fields.extend(_fields(state))
            if target.name == "uuid.UUID":
                self.stack[-1] = _replaced(self.memo, target, _uuid(target))

    def instance(self, argument: Any) -> None:
        self.stack.append(_made(Name(str(argument).replace(" ", ".")), tuple(self.marked())))

    def object(self) -> None:
        kind, *args = self.marked()
        self.stack.append(_made(kind, tuple(args)))


def _replaced(memo: dict[int, Any], old: Any, new: Any) -> Any:
    for at, value in memo.items():
        if value is old:
            memo[at] = new
    return new


def _uuid(thing: Thing) -> Any:
    number = dict(thing.fields).get("int")
    return uuid.UUID(int=number) if type(number) is int else thing


def _fields(state: Any) -> list[tuple[str, Any]]:
    """What an object's state says of its fields: a dict, or one of these and one of slots."""
    if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], Mapped):
        return [*(_fields(state[0]) if state[0] is not None else ()), *_fields(state[1])]
    if isinstance(state, Mapped) and all(type(key) is str for key, _ in state.items):
        return list(state.items)
    return [("state", state)]


def _made(function: Any, args: Any) -> Any:
    name = function.name if isinstance(function, Name) else text(function)
    if not isinstance(args, tuple):
        raise UnreadableError(f"{name} is called with a {type(args).__name__}")
    known = _KNOWN.get(name)
    made = None if known is None else known(args)
    return Thing(name, args) if made is None else made


def _row(args: tuple[Any, ...]) -> Thing | None:
    names, values = args[0], args[1]
    if not (isinstance(names, tuple) and isinstance(values, tuple) and len(names) == len(values)):
        return None
    return Thing(ROW, (), [(str(name), value) for name, value in zip(names, values, strict=True)])


def _with_fields(args: tuple[Any, ...]) -> Thing | None:
    """An object with fields, as `stored_objects` writes it: it is made before, and filled here."""
    target, state = args
    if not (isinstance(target, Thing) and isinstance(state, tuple) and len(state) == 2):
        return None
    target.fields.extend(_fields(state[1]))
    return target


def _named_tuple(args: tuple[Any, ...]) -> Thing | None:
    kind, names, values = args
    if not (isinstance(kind, Name) and isinstance(names, tuple) and isinstance(values, tuple)):
        return None
    return Thing(kind.name, (), [(str(n), v) for n, v in zip(names, values, strict=True)])


def _sets(name: str) -> Callable[[tuple[Any, ...]], Any]:
    def made(args: tuple[Any, ...]) -> Any:
        return Elements(name, list(args[0])) if args and isinstance(args[0], list) else None

    return made


def _plainly(kind: Callable[..., Any]) -> Callable[[tuple[Any, ...]], Any]:
    """A constructor, for arguments that are plain."""

    def made(args: tuple[Any, ...]) -> Any:
        if all(type(arg) in (int, str, bytes, dt.timezone, ZoneInfo) for arg in args):
            return kind(*args)
        return None

    return made


def _timezone(args: tuple[Any, ...]) -> Any:
    return (
        dt.timezone(*args) if args and all(type(a) in (dt.timedelta, str) for a in args) else None
    )


def _attribute(args: tuple[Any, ...]) -> Any:
    """The one function that zones are pickled with; no other attribute is looked for."""
    known = len(args) == 2 and args[0] == Name("zoneinfo.ZoneInfo") and args[1] == "_unpickle"
    return Name(_ZONE_MADE) if known else None


def _zone(args: tuple[Any, ...]) -> Any:
    """A zone, by its name, if this machine knows it."""
    if not args or type(args[0]) is not str or not _ZONE_NAME.fullmatch(args[0]):
        return None
    try:
        return ZoneInfo(args[0])
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


ROW: Final = "strom.Row"

_ZONE_MADE: Final = "zoneinfo.ZoneInfo._unpickle"
_ZONE_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,3}")

_KNOWN: Final[dict[str, Callable[[tuple[Any, ...]], Any]]] = {
    "datetime.date": _plainly(dt.date),
    "datetime.time": _plainly(dt.time),
    "datetime.datetime": _plainly(dt.datetime),
    "datetime.timedelta": _plainly(dt.timedelta),
    "datetime.timezone": _timezone,
    "decimal.Decimal": _plainly(Decimal),
    "builtins.getattr": _attribute,
    "builtins.set": _sets("set"),
    "builtins.frozenset": _sets("frozenset"),
    "strom.core.row.make_row": _row,
    "strom.state.stored_objects.named_tuple": _named_tuple,
    "strom.state.stored_objects.set_fields": _with_fields,
    _ZONE_MADE: _zone,
}

_MARK: Final = object()

_CONSTANTS: Final[dict[str, Callable[[], Any]]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": Mapped,
    "EMPTY_SET": lambda: Elements("set"),
    "MARK": lambda: _MARK,
}

_LITERALS: Final = frozenset(
    [
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "FLOAT",
        "BINFLOAT",
        "UNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
        "SHORT_BINBYTES",
        "BINBYTES",
        "BINBYTES8",
        "BYTEARRAY8",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
    ]
)

_IGNORED: Final = frozenset({"PROTO", "FRAME"})

_Step = Callable[[_Machine, Any], None]


def _memoize(machine: _Machine, _: Any) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _put(machine: _Machine, at: Any) -> None:
    machine.memo[int(at)] = machine.stack[-1]


def _get(machine: _Machine, at: Any) -> None:
    machine.stack.append(machine.memo[int(at)])


def _pop(machine: _Machine, _: Any) -> None:
    machine.top(1)


def _pop_mark(machine: _Machine, _: Any) -> None:
    machine.marked()


def _append(machine: _Machine, _: Any) -> None:
    machine.extend(machine.top(1))


def _dict(machine: _Machine, _: Any) -> None:
    items = machine.marked()
    machine.stack.append(Mapped())
    machine.put_items(items)


def _global(machine: _Machine, argument: Any) -> None:
    machine.stack.append(Name(str(argument).replace(" ", ".")))


_STEPS: Final[dict[str, _Step]] = {
    "MEMOIZE": _memoize,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _get),
    "APPEND": _append,
    "APPENDS": lambda m, _: m.extend(m.marked()),
    "ADDITEMS": lambda m, _: m.extend(m.marked()),
    "SETITEM": lambda m, _: m.put_items(m.top(2)),
    "SETITEMS": lambda m, _: m.put_items(m.marked()),
    "LIST": lambda m, _: m.stack.append(m.marked()),
    "DICT": _dict,
    "FROZENSET": lambda m, _: m.stack.append(Elements("frozenset", m.marked())),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.marked())),
    "TUPLE1": lambda m, _: m.tuple_of(1),
    "TUPLE2": lambda m, _: m.tuple_of(2),
    "TUPLE3": lambda m, _: m.tuple_of(3),
    "POP": _pop,
    "POP_MARK": _pop_mark,
    "DUP": lambda m, _: m.stack.append(m.stack[-1]),
    "GLOBAL": _global,
    "STACK_GLOBAL": lambda m, _: m.name(),
    "REDUCE": lambda m, _: m.call(),
    "NEWOBJ": lambda m, _: m.call(),
    "NEWOBJ_EX": lambda m, _: m.call_with(),
    "BUILD": lambda m, _: m.build(),
    "INST": lambda m, argument: m.instance(argument),
    "OBJ": lambda m, _: m.object(),
}
