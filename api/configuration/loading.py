"""Keys and values out of YAML, the environment and a command line. All values are text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ...core.errors import ConfigurationError

CONF_DIR: Final = "STROM_CONF_DIR"
"""The environment variable that names the folder of `config.yaml`."""

PROPERTIES: Final = "STROM_PROPERTIES"
"""The environment variable that holds lines of such a file."""

PREFIX: Final = "STROM_CONF__"
"""Of environment variables that are one key each."""

_DEEPEST: Final = 100
"""Parts that a key may have: more only one has that YAML's references make endless."""

_EMPTY: Final = ("", "null", "~")


def read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the configuration {path} cannot be read: {error}") from None


def from_yaml(text: str, name: str) -> dict[str, Any]:
    """Keys joined by dots; lists stay lists, a key without a value is left out. `name`: of the
    file, for errors."""
    import yaml

    try:
        tree = yaml.compose(text, yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{name} is not well-formed YAML: {error}") from None
    found: dict[str, Any] = {}
    if tree is not None:
        _flatten(tree, "", found, name)
    return found


def _flatten(node: Any, path: str, found: dict[str, Any], name: str) -> None:
    import yaml

    if path.count(".") > _DEEPEST:
        raise ConfigurationError(f"{_at(name, node)}: '{path[:80]}...' has too many parts")
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigurationError(f"{_at(name, key)}: a key must be plain text")
            _flatten(value, f"{path}.{key.value}" if path else key.value, found, name)
        return
    if not path:
        raise ConfigurationError(f"{_at(name, node)}: expected lines of `key: value`")
    if path in found:
        raise ConfigurationError(f"{_at(name, node)}: '{path}' stands there twice")
    if isinstance(node, yaml.SequenceNode):
        if not all(isinstance(one, yaml.ScalarNode) for one in node.value):
            raise ConfigurationError(f"{_at(name, node)}: '{path}' must be a list of plain texts")
        found[path] = [one.value for one in node.value]
    elif node.style is not None or node.value not in _EMPTY:
        found[path] = node.value


def _at(name: str, node: Any) -> str:
    return f"{name}, line {node.start_mark.line + 1}"


def key_of_variable(name: str) -> str:
    """`STROM_CONF__EXECUTION__CHECKPOINTING__MIN_PAUSE` is `execution.checkpointing.min-pause`."""
    return name.removeprefix(PREFIX).lower().replace("__", ".").replace("_", "-")


def from_environment(environment: Mapping[str, str]) -> list[tuple[dict[str, Any], str]]:
    """What the environment says, and where it says so; what comes later counts more. A variable
    that is none of these, but named like them, is an error."""
    for name in sorted(environment):
        if name.startswith("STROM_CONF") and name != CONF_DIR and not name.startswith(PREFIX):
            raise ConfigurationError(
                f"the environment variable {name} means nothing: an option is {PREFIX}<KEY>, with "
                f"__ for a dot and _ for a hyphen, and {CONF_DIR} the folder of config.yaml"
            )
    found: list[tuple[dict[str, Any], str]] = []
    folder = environment.get(CONF_DIR)
    if folder:
        file = Path(folder) / "config.yaml"
        found.append((from_yaml(read_file(file), str(file)), f"in {file}"))
    if environment.get(PROPERTIES):
        found.append((from_yaml(environment[PROPERTIES], PROPERTIES), f"in {PROPERTIES}"))
    for name, value in sorted(environment.items()):
        if name.startswith(PREFIX) and len(name) > len(PREFIX):
            found.append(({key_of_variable(name): value}, f"in the environment variable {name}"))
    return found


def from_arguments(args: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """What `-Dkey=value` and `-D key=value` say, and the other arguments. What follows `--` is the
    program's."""
    found: dict[str, Any] = {}
    others: list[str] = []
    rest = list(args)
    while rest:
        one = rest.pop(0)
        if one == "--":
            others += [one, *rest]
            break
        if not one.startswith("-D"):
            others.append(one)
            continue
        given = one.removeprefix("-D") or (rest.pop(0) if rest else "")
        key, equals, value = given.partition("=")
        if not key or not equals:
            raise ConfigurationError(f"'-D{given}' on the command line: write -Dkey=value")
        found[key.strip()] = value
    return found, others
