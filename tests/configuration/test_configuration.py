"""`Configuration` and `ConfigOption`, as PyFlink has them."""

from __future__ import annotations

import copy
from datetime import timedelta
from enum import Enum
from pathlib import Path

import pytest
from strom import ConfigOptions, Configuration, ConfigurationError, MemorySize


def test_typed_values() -> None:
    configuration = Configuration()
    configuration.set_string("s", "12")
    configuration.set_integer("i", 5)
    configuration.set_boolean("b", True)
    configuration.set_float("f", 2)
    configuration.set_bytearray("y", bytearray(b"\x00\x01"))
    assert configuration.get_integer("s", 0) == 12
    assert configuration.get_string("i", "") == "5"
    assert configuration.get_boolean("b", False) is True
    assert configuration.get_string("b", "") == "true"
    assert configuration.get_float("i", 0.0) == 5.0
    assert configuration.get_bytearray("y", bytearray()) == bytearray(b"\x00\x01")
    assert configuration.get_string("none", "d") == "d"
    assert configuration.get_bytearray("none", bytearray(b"d")) == bytearray(b"d")
    assert configuration.key_set() == {"s", "i", "b", "f", "y"}
    assert configuration.to_dict() == {"s": "12", "i": "5", "b": "true", "f": "2.0", "y": "AAE="}


def test_wrong_types_name_the_key() -> None:
    configuration = Configuration.from_dict({"k": "x"})
    for read in (
        lambda: configuration.get_integer("k", 1),
        lambda: configuration.get_boolean("k", True),
        lambda: configuration.get_float("k", 1.0),
        lambda: configuration.get_bytearray("k", bytearray()),
    ):
        with pytest.raises(ConfigurationError, match="option 'k': "):
            read()
    for write in (
        lambda: configuration.set_string("k", 1),  # type: ignore[arg-type]
        lambda: configuration.set_integer("k", True),
        lambda: configuration.set_boolean("k", "true"),  # type: ignore[arg-type]
        lambda: configuration.set_float("k", "1"),  # type: ignore[arg-type]
        lambda: configuration.set_bytearray("k", "1"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigurationError, match="option 'k' must be"):
            write()
    with pytest.raises(ConfigurationError, match="must be a name"):
        configuration.set_string("", "x")


def test_sets_of_keys() -> None:
    one = Configuration.from_dict({"a": "1", "b": "2"})
    two = Configuration(one)
    assert two == one
    assert two.remove_config("a") is True
    assert two.remove_config("a") is False
    assert one.contains_key("a")
    assert not two.contains_key("a")
    assert two != one
    two.add_all(one, "x.")
    assert two.key_set() == {"b", "x.a", "x.b"}
    found = {"z": "0"}
    two.add_all_to_dict(found)
    assert found == {"z": "0", "b": "2", "x.a": "1", "x.b": "2"}
    deep = copy.deepcopy(two)
    deep.set_string("b", "3")
    assert two.get_string("b", "") == "2"
    assert str(Configuration.from_dict({"a": 1})) == "{'a': '1'}"


def test_lists() -> None:
    assert Configuration.parse_list_value("a;b") == ["a", "b"]
    assert Configuration.parse_list_value("[a, b]") == ["a", "b"]
    assert Configuration.parse_list_value("") == []


class Colour(Enum):
    RED = 0
    BLUE = 1


def test_options() -> None:
    threads = ConfigOptions.key("my.threads").int_type().default_value(4)
    wait = ConfigOptions.key("my.wait").duration_type().no_default_value()
    colour = ConfigOptions.key("my.colour").enum_type(Colour).default_value(Colour.RED)
    names = ConfigOptions.key("my.names").string_type().as_list().no_default_value()
    size = ConfigOptions.key("my.size").memory_type().no_default_value()
    old = (
        ConfigOptions.key("my.new").string_type().no_default_value().with_deprecated_keys("my.old")
    )
    configuration = Configuration.from_dict(
        {"my.wait": "2 s", "my.colour": "blue", "my.old": "still", "my.size": "1 kb"}
    )
    assert configuration.get(threads) == 4
    assert configuration.get(threads, 7) == 7
    assert configuration.get(wait) == timedelta(seconds=2)
    assert configuration.get(colour) is Colour.BLUE
    assert configuration.get(names) is None
    assert configuration.get(size) == MemorySize(1024)
    assert configuration.get(old) == "still"
    assert configuration.contains(old)
    assert configuration.set(names, ["a", "b"]).get(names) == ["a", "b"]
    with pytest.raises(ConfigurationError, match=r"option 'my\.threads': 'x' is no integer"):
        configuration.set(threads, "x")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="is no integer"):
        ConfigOptions.key("k").int_type().default_value("x")  # type: ignore[arg-type]


def test_types_of_options() -> None:
    values = {"b": "TRUE", "l": str(2**40), "f": "1.5", "d": 2, "m": "a:1,b:2", "e.a": "1"}
    configuration = Configuration.from_dict(values)
    key = ConfigOptions.key
    flag = key("b").boolean_type()
    assert configuration.get(flag.no_default_value()) is True
    assert configuration.get(key("none").boolean_type().default_value(False)) is False
    assert configuration.get(key("l").long_type().no_default_value()) == 2**40
    assert configuration.get(key("f").float_type().no_default_value()) == 1.5
    assert configuration.get(key("d").double_type().no_default_value()) == 2.0
    assert configuration.get(key("m").map_type().no_default_value()) == {"a": "1", "b": "2"}
    for wrong in (flag, key("b").long_type(), key("l").map_type()):
        with pytest.raises(ConfigurationError, match=f"option '{wrong.key}': "):
            Configuration.from_dict({wrong.key: "x"}).get(wrong.no_default_value())
    with pytest.raises(ConfigurationError, match="'x' is no number"):
        key("f").double_type().default_value("x")  # type: ignore[arg-type]


def test_what_an_option_says_of_itself() -> None:
    option = ConfigOptions.key("k").int_type().default_value(3).with_description("how many")
    assert (option.has_default_value(), option.default_value()) == (True, 3)
    assert option.description == "how many"
    assert not ConfigOptions.key("k").int_type().no_default_value().has_default_value()


# --- files -------------------------------------------------------------------------------------

FILE = """
# nested and flat, as Flink's
parallelism:
  default: 4
execution.checkpointing:
  interval: 10 s
restart-strategy.type: off
pipeline.global-job-parameters: {a: 1}
my.list: [x, y]
my.empty:
my.null: null
my.text: "null"
"""


def test_yaml_nested_and_flat(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(FILE)
    expected = {
        "parallelism.default": "4",
        "execution.checkpointing.interval": "10 s",
        "restart-strategy.type": "off",
        "pipeline.global-job-parameters.a": "1",
        "my.list": '["x", "y"]',
        "my.text": "null",
    }
    assert Configuration.from_file(tmp_path).to_dict() == expected
    assert Configuration.from_file(tmp_path / "config.yaml").to_dict() == expected
    assert Configuration.from_yaml(FILE).to_dict() == expected
    assert Configuration.from_yaml("").to_dict() == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2", "line 2: 'a' stands there twice"),
        ("a.b: 1\na:\n  b: 2", "line 3: 'a.b' stands there twice"),
        ("- a", "line 1: expected lines of `key: value`"),
        ("a: [b", "is not well-formed YAML"),
        ("a: &x\n  b: *x", "has too many parts"),
        ("a: [{b: 1}]", "'a' must be a list of plain texts"),
    ],
)
def test_bad_files_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "strom.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=message) as raised:
        Configuration.from_file(file)
    assert str(file) in str(raised.value)


def test_a_missing_file() -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere/config\.yaml cannot be read"):
        Configuration.from_file("nowhere/config.yaml")


def test_a_command_line() -> None:
    args = ["-Dparallelism.default=4", "--input", "x", "-D", "a=b=c", "--", "-Dnot=mine"]
    assert Configuration.from_args(args).to_dict() == {"parallelism.default": "4", "a": "b=c"}
    assert Configuration.remaining_args(args) == ["--input", "x", "--", "-Dnot=mine"]
    for wrong in (["-D"], ["-Dkey"], ["-D=x"]):
        with pytest.raises(ConfigurationError, match="write -Dkey=value"):
            Configuration.from_args(wrong)
