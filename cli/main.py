"""`strom`, the command line. Also `python -m strom.cli`."""

from __future__ import annotations

import typer

from . import cluster, dashboard, doctor, history, jobs, logs, savepoints, state, top

app = typer.Typer(
    name="strom",
    help="Stateful stream processing: what a person or a script asks of strom.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(cluster.app, name="cluster")
app.command(context_settings=jobs.PROGRAM)(jobs.run)
app.command(name="list")(jobs.list_jobs)
app.command()(jobs.info)
app.command()(top.top)
app.command()(logs.logs)
app.command()(dashboard.dashboard)
app.command()(jobs.cancel)
app.add_typer(state.app, name="state")
app.command()(savepoints.savepoint)
app.command()(savepoints.stop)
app.command(name="history-server")(history.history_server)
app.command()(doctor.doctor)


@app.callback()
def strom() -> None:
    """Stateful stream processing: what a person or a script asks of strom."""


def main() -> None:
    """The entry point. Exit codes are the commands' (`answers`)."""
    app()
