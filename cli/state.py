"""`strom state`: what is in a checkpoint or savepoint. Reads files, and runs nothing of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import answers

if TYPE_CHECKING:
    import pyarrow as pa

    from ..snapshots import Difference, Snapshot
    from ..snapshots.verifying import Verified

app = typer.Typer(
    help="Look into checkpoints and savepoints: PATH is the folder of one, or of a job (its "
    "newest), as a path or an fsspec URL.",
    no_args_is_help=True,
)

Path = Annotated[str, typer.Argument(help="Folder of a checkpoint, a savepoint or a job.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of tables.")]
Limit = Annotated[int, typer.Option(help="Rows that are shown; 0: all.", min=0)]
Unpickle = Annotated[
    bool,
    typer.Option("--unpickle", help="Run pickles of the file: only for files that you trust."),
]


@app.command()
def ls(path: Path, as_json: Json = False) -> None:
    """The operators and their states: kinds, rows, bytes, key groups."""
    with answers.answering(as_json):
        snapshot = _open(path)
        described = _described(snapshot)
        if as_json:
            answers.say_json(described)
        else:
            _say_operators(snapshot)


def _say_operators(snapshot: Snapshot) -> None:
    what = "savepoint" if snapshot.savepoint else f"checkpoint {snapshot.checkpoint_id}"
    time = snapshot.time.isoformat(sep=" ", timespec="seconds")
    answers.say(
        f"{what} of job '{snapshot.job_name}' ({snapshot.job_id}), {time}, {snapshot.bytes:,} bytes"
    )
    rows = []
    for one in snapshot.operators:
        shape = f"{one.parallelism} of {one.max_parallelism}"
        label = one.name if one.enumerator is None else f"{one.name} (source)"
        first: list[Any] = [label, one.uid or one.id, shape]
        for state in one.states or (None,):
            cells = [] if state is None else [state.name, state.kind, state.rows, state.bytes]
            groups = None if state is None else state.key_groups
            rows.append([*first, *cells, *[None] * (4 - len(cells)), groups])
            first = ["", "", ""]
    columns = ["operator", "uid or id", "parallelism", "state", "kind", "rows", "bytes", "groups"]
    answers.say_table("", columns, rows)


@app.command()
def show(
    path: Path,
    operator: Annotated[str, typer.Argument(help="An operator's uid, id or name.")],
    state: Annotated[str, typer.Argument(help="The name of a state.")],
    as_json: Json = False,
    limit: Limit = 50,
    raw: Annotated[bool, typer.Option("--raw", help="Columns as they are stored.")] = False,
    unpickle: Unpickle = False,
) -> None:
    """The rows of a state."""
    with answers.answering(as_json):
        table = _open(path).table(operator, state, raw=raw, unpickle=unpickle)
        _say_rows(f"{operator}.{state}", table, as_json, limit)


@app.command()
def sql(
    path: Path,
    query: Annotated[str, typer.Argument(help='As in: SELECT * FROM state."count" WHERE key = 1')],
    as_json: Json = False,
    limit: Limit = 50,
    unpickle: Unpickle = False,
) -> None:
    """A DuckDB query over all states, each of which is a view state."NAME", or
    state."OPERATOR.NAME"."""
    with answers.answering(as_json):
        table = _open(path).sql(query, unpickle=unpickle)
        _say_rows("", table, as_json, limit)


@app.command()
def diff(
    path: Path,
    other: Annotated[str, typer.Argument(help="What it is held against.")],
    as_json: Json = False,
    limit: Limit = 20,
) -> None:
    """What the second has otherwise than the first. Exit code 1 if there is anything."""
    with answers.answering(as_json):
        found = _open(path).diff(other)
        if as_json:
            answers.say_json(_differences(found, limit or None))
        else:
            _say_differences(found, limit or None)
    if found:
        raise typer.Exit(answers.DIFFERENT)


@app.command()
def verify(path: Path, as_json: Json = False) -> None:
    """Read all of it, and hold it against the manifest. Exit code 1 if something is damaged."""
    with answers.answering(as_json):
        found = _open(path).verify()
        if as_json:
            answers.say_json({"ok": found.ok, **vars(found)})
        else:
            _say_verified(found)
    if not found.ok:
        raise typer.Exit(answers.DIFFERENT)


def _say_differences(found: Difference, limit: int | None) -> None:
    for note in found.notes:
        answers.say(note)
    for one in found.states:
        name = f"{one.operator}.{one.state}"
        answers.say(f"{name}: {one.added} added, {one.removed} removed, {one.changed} changed")
        for title, table in (("before", one.before), ("after", one.after)):
            if table is not None and table.num_rows:
                answers.say_rows(title, table, limit)
    if not found:
        answers.say("no difference")


def _say_verified(found: Verified) -> None:
    for problem in found.problems:
        answers.say(f"damaged: {problem}")
    for one in found.unchecked:
        answers.say(f"keys not checked: {one}")
    verdict = "fine" if found.ok else f"{len(found.problems)} problems"
    answers.say(f"{found.files} files, {found.bytes:,} bytes, {found.rows:,} rows: {verdict}")


def _open(path: str) -> Snapshot:
    from ..snapshots import open

    return open(path)


def _described(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "path": snapshot.path,
        "job": {"id": snapshot.job_id, "name": snapshot.job_name},
        "checkpoint": snapshot.checkpoint_id,
        "savepoint": snapshot.savepoint,
        "time": snapshot.time,
        "bytes": snapshot.bytes,
        "operators": [
            {**vars(one), "states": [vars(state) for state in one.states]}
            for one in snapshot.operators
        ],
    }


def _differences(found: Difference, limit: int | None) -> dict[str, Any]:
    def rows(table: pa.Table | None) -> Any:
        return None if table is None else table.slice(0, limit).to_pylist()

    states = [
        {**vars(one), "before": rows(one.before), "after": rows(one.after)} for one in found.states
    ]
    return {"different": bool(found), "notes": list(found.notes), "states": states}


def _say_rows(title: str, table: pa.Table, as_json: bool, limit: int) -> None:
    if as_json:
        rows = table if not limit else table.slice(0, limit)
        document = {"rows": table.num_rows, "columns": table.column_names}
        answers.say_json({**document, "data": rows.to_pylist()})
    else:
        answers.say_rows(title, table, limit or None)
