"""`strom`, the command line. Also `python -m strom.cli`."""

from __future__ import annotations

import typer

from . import (
    autoscale,
    bench,
    checkpoints,
    cluster,
    commands,
    completion,
    dashboard,
    doctor,
    history,
    jobs,
    logs,
    plan,
    replay,
    rescale,
    run,
    savepoints,
    state,
    top,
)

completion.answer_the_first_tab()

app = typer.Typer(
    name="strom",
    cls=commands.Commands,
    help="Stateful stream processing: what a person or a script asks of strom.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(cluster.app, name="cluster")
app.command(context_settings=run.PROGRAM)(run.run)
app.command(name="list")(jobs.list_jobs)
app.command()(jobs.info)
app.command(context_settings=plan.ARGUMENTS)(plan.plan)
app.command()(top.top)
app.command()(logs.logs)
app.command()(dashboard.dashboard)
app.command()(checkpoints.checkpoints)
app.command()(savepoints.savepoint)
app.command()(savepoints.stop)
app.command()(jobs.cancel)
app.command()(rescale.rescale)
app.command()(autoscale.autoscale)
app.add_typer(state.app, name="state")
app.command(context_settings=replay.PROGRAM)(replay.replay)
app.command(name="history-server")(history.history_server)
app.command()(doctor.doctor)
app.command(context_settings=bench.OPTIONS, add_help_option=False)(bench.bench)


@app.callback()
def strom() -> None:
    """Stateful stream processing: what a person or a script asks of strom."""


def main() -> None:
    """The entry point. Exit codes are the commands' (`answers`)."""
    app()
