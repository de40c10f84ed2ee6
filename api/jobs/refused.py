"""What PyFlink's environment can be told and this one cannot: each says why, and what to do."""

from __future__ import annotations

from typing import Any, NoReturn

from ...core.errors import ConfigurationError


class Refused:
    """Methods that always raise ConfigurationError."""

    def set_python_executable(self, python_exec: str) -> NoReturn:
        raise ConfigurationError(
            "set_python_executable: tasks run with the Python of Ray's workers; start these with "
            "it, or connect with ray.init(runtime_env={'py_executable': ...})"
        )

    def add_jars(self, *jars_path: str) -> NoReturn:
        raise ConfigurationError(
            "add_jars: there is no JVM, so there are no jars; connectors come with strom"
        )

    def add_classpaths(self, *classpaths: str) -> NoReturn:
        raise ConfigurationError("add_classpaths: there is no JVM, so there is no class path")

    def create_input(self, input_format: Any, type_info: Any = None) -> NoReturn:
        raise ConfigurationError(
            "create_input: input formats are classes of a JVM; use from_source with a Source"
        )
