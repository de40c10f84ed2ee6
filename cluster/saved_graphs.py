"""A graph that was saved (`JobGraph.save`), run on a Ray cluster: what `strom run --graph` starts.

    python -m strom.cluster.saved_graphs FILE [--detached] [--restore-from PLACE]

The file is a pickle, and opening it runs what its maker wants.
"""

from __future__ import annotations

import argparse
import pickle
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..core.errors import ConfigurationError, StromError
from ..engine.graph.model import SAVED, JobGraph
from ..engine.graph.shipping import unreadable
from .session_host import SessionHost


def load(path: str) -> JobGraph:
    """Runs code of whoever made the file. ConfigurationError, SerializationError."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"the graph {path} cannot be read: {error}") from None
    line = data.partition(b"\n")[0][:100].decode("ascii", "replace")
    if not data.startswith(SAVED):
        wanted = SAVED.decode().strip()
        found = f"it begins with {line!r}" if line.startswith("strom graph") else "it is no graph"
        raise ConfigurationError(
            f"{path} cannot be opened here: {found}, and this is '{wanted}': save it anew, with "
            "env.get_job_graph().save(path)"
        )
    try:
        graph: JobGraph = pickle.loads(data[len(SAVED) :])
    except Exception as error:
        raise unreadable(error) from None
    return graph


def run(path: str, detached: bool = False, restore_from: str | None = None) -> None:
    """Submit it, and wait for its end unless `detached`. As `env.execute` raises."""
    graph = load(path)
    config = replace(graph.config, attached=not detached)
    if restore_from is not None:
        config = replace(config, restore_from=restore_from)
    client = SessionHost().submit(replace(graph, config=config), graph.name)
    if not detached:
        client.get_job_execution_result()


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 1, and a sentence on stderr, for what cannot run or fails."""
    parser = argparse.ArgumentParser("python -m strom.cluster.saved_graphs")
    parser.add_argument("file")
    parser.add_argument("--detached", action="store_true")
    parser.add_argument("--restore-from")
    given = parser.parse_args(words)
    try:
        run(given.file, given.detached, given.restore_from)
    except StromError as error:
        print(f"strom: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
