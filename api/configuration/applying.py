"""From a `Configuration` to `Settings`; and which configuration a program starts with.

What counts, from most to least: what the program sets in code, the command line (where the program
hands it over), the environment, the file, the defaults.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ...core.errors import ConfigurationError
from .configuration import Configuration
from .foreign import is_known, mistake_in, tell_of_foreign
from .groups import GROUPS
from .known import KNOWN, MAPS
from .loading import from_environment
from .settings import Settings
from .values import MAP


def ambient_configuration(environment: Mapping[str, str] | None = None) -> Configuration:
    """What the environment of this program says, and the file that it names."""
    configuration = Configuration()
    for values, origin in from_environment(os.environ if environment is None else environment):
        configuration.add_all(_canonical(Configuration.of_origin(values, origin)))
    return configuration


def merged(under: Configuration, over: Configuration) -> Configuration:
    """Both; what `over` says counts."""
    both = Configuration(under)
    both.add_all(_canonical(over))
    return both


_local_parallelism = [1]


def default_local_parallelism() -> int:
    """The parallelism of environments for which nothing says another."""
    return _local_parallelism[0]


def set_default_local_parallelism(parallelism: int) -> None:
    _local_parallelism[0] = parallelism


def configure(settings: Settings, configuration: Configuration) -> None:
    """Set all that the configuration says. ConfigurationError names the key, where it was set and
    what is wrong; some settings may have been changed then."""
    _check(configuration)
    given = _canonical(configuration)
    settings.configuration.add_all(given)
    for known in KNOWN:
        if known.apply is not None and given.contains_key(known.option.key):
            value = given.get(known.option)
            try:
                known.apply(settings, value)
            except ConfigurationError as error:
                raise given.error(known.option.key, str(error)) from None
    for covers, apply in GROUPS:
        new = given.only(key for key in given.key_set() if covers(key))
        if len(new):
            settings.together.add_all(new)
            apply(settings)


def _check(configuration: Configuration) -> None:
    for key in sorted(configuration.key_set()):
        mistake = None if is_known(key) else mistake_in(key)
        if mistake is not None:
            raise configuration.error(key, mistake)
    tell_of_foreign(key for key in configuration.key_set() if not is_known(key))


def _canonical(configuration: Configuration) -> Configuration:
    """Each option under its own key, if it was set under an old one, and the entries of a map
    gathered: so one configuration can be laid over another."""
    given = Configuration(configuration)
    for known in KNOWN:
        key, *old_keys = known.option.key, *known.option.old_keys
        for old in old_keys:
            if given.contains_key(old) and not given.contains_key(key):
                origin = f"{given.origin(old)} (as '{old}')".strip()
                given.add_all(Configuration.of_origin({key: given.raw(old)}, origin))
            given.remove_config(old)
    for key in MAPS:
        inner = sorted(k for k in given.key_set() if k.startswith(f"{key}."))
        if inner:
            entries = {k[len(key) + 1 :]: given.get_string(k, "") for k in inner}
            whole = {**given.read(MAP, key, {}), **entries}
            origin = given.origin(inner[0])
            for one in inner:
                given.remove_config(one)
            given.add_all(Configuration.of_origin({key: whole}, origin))
    return given
