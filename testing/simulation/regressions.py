"""Cases that once failed, and what was wrong then. They run in each test.

A case is written down whole, as it was printed, shrunk if possible: what seeds draw may change.
"""

from __future__ import annotations

from typing import Final

REGRESSIONS: Final[dict[str, str]] = {
    "stopped with a savepoint that nobody was told of": (
        "seed=5022 job=stateless variant=8 parallelism=1,3 cramped=1 mode=unaligned interval=1 "
        "retained=2 ends=savepoint crashes=1 coordinators=1 after=1 failing=5 hangs=5 "
        "slow_tasks=20"
    ),
    "a terminal checkpoint that was published, and given up all the same": (
        "seed=5 job=timers parallelism=2,1 batch=1 interval=1 retained=2 ends=savepoint "
        "coordinators=1 after=1 figures=0 sink=staged"
    ),
    "a removal that waits until it can be told who holds the job": (
        "seed=30338 job=pairs variant=11 parallelism=2,1 batch=8 cramped=1 at_once=3 full_every=4 "
        "crashes=1 coordinators=1 failing=20 slow_work=1 figures=0"
    ),
    "a coordinator that takes over a sink when another has it": (
        "seed=30017 job=two_stages parallelism=1 cramped=1 interval=4 full_every=1 stop=2 "
        "crashes=2 coordinators=1 after=1 window=150 failing=60 hangs=20 slow_work=1 cut_offs=2 "
        "figures=0 sink=staged"
    ),
    "a coordinator that is late restores what is gone": (
        "seed=236 job=tumbling variant=8 parallelism=2,3 mode=unaligned retained=2 at_once=2 "
        "full_every=1 crashes=1 failing=5 hangs=20 slow_tasks=20 slow_work=5 cut_offs=2 away=5 "
        "commits=300"
    ),
    "a task that was cut off is heard of by a coordinator that goes on": (
        "seed=40453 job=pairs parallelism=2,2 batch=8 cramped=1 interval=4 at_once=2 stop=2 "
        "crashes=2 after=2 window=60 failing=60 slow_work=1 cut_offs=2 away=5 partitions=3 "
        "figures=0"
    ),
    "files of a checkpoint that was on when the tasks got another coordinator": (
        "seed=5098 job=two_stages variant=9 parallelism=3,1 batch=1 interval=1 incremental=0 "
        "at_once=2 ends=savepoint coordinators=1 after=2 figures=0 sink=staged"
    ),
    "what is left over when the tasks get another coordinator at their end": (
        "seed=6202 job=timers parallelism=3,3 batch=8 mode=unaligned interval=1 incremental=0 "
        "at_once=3 full_every=1 stop=2 coordinators=1 failing=5 slow_work=1 partitions=3 "
        "figures=0 sink=staged"
    ),
    "a barrier behind one that has overtaken it at the sender, both given up": (
        "seed=5247 job=running variant=2 parallelism=1 batch=1 mode=unaligned window=150 "
        "slow_work=5 partitions=2 figures=0 choices=300"
    ),
    "what a coordinator before had begun, of a job that fails before another completes": (
        "seed=0 job=stateless records=8 parallelism=1 cramped=1 interval=1 incremental=0 "
        "at_once=2 coordinators=1 window=60 figures=0 refused=30 limit=short"
    ),
    "what is left of one that never completed, of a job that goes on and fails": (
        "seed=5 job=regions variant=7 parallelism=2,1 cramped=1 interval=4 crashes=1 slow_work=5 "
        "figures=0 refused=10 limit=short live=1"
    ),
    "a coordinator that takes over tasks which the one before has told to stop": (
        "seed=497 job=regions records=2 parallelism=1 batch=1 crashes=3 coordinators=1 window=60 "
        "hangs=5 slow_work=10 figures=0 choices=100"
    ),
    "tasks that were added by a rescale, all of whose turns passed": (
        "seed=4937 job=diamond variant=6 parallelism=2,2 mode=unaligned full_every=2 "
        "storage=memory ends=savepoint crashes=3 after=2 window=60 failing=5 figures=0 sink=staged "
        "own=3"
    ),
    "a rescale for the load whose part runs while another one is being restarted": (
        "seed=1012 job=regions variant=2 mode=unaligned interval=4 at_once=3 full_every=1 stop=3 "
        "crashes=1 coordinators=1 after=1 window=60 live=1 own=3"
    ),
    "the checkpoints of another job, which was restored from one that was taken for dead": (
        "seed=1831 job=sliding variant=2 parallelism=2,2 batch=1 mode=at_least_once incremental=0 "
        "at_once=3 storage=objects stop=3 crashes=2 coordinators=1 window=60 cut_offs=1 away=30 "
        "figures=0 sink=staged live=2 own=2 looks=2 short=1"
    ),
    "an older checkpoint that is stored behind the one with which the job was stopped": (
        "seed=10277 job=islands variant=6 parallelism=3,2 cramped=1 interval=4 full_every=2 "
        "ends=savepoint stop=2 crashes=3 coordinators=1 hangs=20 commits=100 figures=0 sink=staged "
        "live=3 short=1 amid=2"
    ),
    "a checkpoint that would have stopped the job, stored when it had been given up": (
        "seed=8794 job=sliding variant=8 records=8 parallelism=2,1 batch=8 interval=1 "
        "ends=savepoint coordinators=1 after=1 hangs=20 refused=10 limit=short choices=300 amid=1"
    ),
    "files that stay because nobody can tell whether the coordinator is still the one": (
        "seed=7616 job=timers variant=5 records=16 mode=unaligned crashes=2 coordinators=1 "
        "window=60 failing=60 hangs=20 slow_work=10 figures=0 refused=10"
    ),
    "a task that goes on with what it had parked, behind the barrier that makes it stand still": (
        "seed=34574 job=two_stages variant=9 records=16 batch=1 cramped=1 mode=unaligned "
        "interval=4 retained=2 coordinators=1 window=60 hangs=5 slow_tasks=20 late=2 figures=0 "
        "own=3 looks=2"
    ),
    "a checkpoint in a folder whose name has the number of a server's refusal": (
        "seed=34127 job=pairs variant=6 records=2 batch=2 interval=1 storage=objects window=60 "
        "failing=60 figures=0 choices=100 amid=2"
    ),
    "files that stay because nobody can tell whether there is a newer coordinator": (
        "seed=16997 job=sessions cramped=1 mode=unaligned interval=4 crashes=1 window=150 "
        "failing=60 slow_tasks=50 slow_work=1 figures=0 choices=100 live=2 own=1"
    ),
    "a state of which nothing is left, in the second of two over one that was not the last": (
        "seed=14680 job=tumbling variant=1 parallelism=2,1 batch=5 cramped=1 interval=1 at_once=3 "
        "stop=2 window=150 slow_tasks=50 slow_work=1 figures=0 choices=300 own=2 amid=1"
    ),
    "a job that was rescaled for its load, and shrank before all of it ran": (
        "seed=16137 job=islands variant=4 parallelism=2,2 batch=1 cramped=1 mode=unaligned "
        "incremental=0 full_every=2 crashes=2 failing=20 figures=0 sink=staged live=1 deals=100 "
        "own=3 short=2"
    ),
    "results written down late, and put together with some that held more": (
        "seed=10732 job=islands variant=8 cramped=1 interval=1 after=2 window=150 savepoints=1 "
        "hangs=20 slow_tasks=50 slow_work=1 commits=100 figures=0 live=2 short=1"
    ),
    "windows that had fired to the end in some key groups of a subtask, and in others had not": (
        "seed=602963 job=two_stages variant=6 parallelism=2,2 batch=1 cramped=1 mode=unaligned "
        "stop=2 crashes=3 after=1 window=150 savepoints=1 slow_work=10 partitions=2 sink=staged "
        "own=3 looks=2 short=2"
    ),
    "tasks whose sink was another's before their next coordinator came": (
        "seed=604875 job=diamond variant=1 parallelism=1,2 interval=4 crashes=1 coordinators=1 "
        "slow_work=5 cut_offs=2 away=100 commits=100 figures=0 sink=staged"
    ),
    "a coordinator that counts as another one for the sinks of the tasks that it takes over": (
        "seed=4 job=tumbling parallelism=2 interval=2 coordinators=2 figures=0 sink=blind"
    ),
    "a coordinator that was held up fenced the one that had come since, and died": (
        "seed=1 job=tumbling away=5 late=1 figures=0"
    ),
    "a coordinator that stopped the tasks that it took over, as their sink counted it": (
        "seed=4 job=tumbling parallelism=2 interval=2 coordinators=2 figures=0 sink=counted"
    ),
    "what a late coordinator had begun when it crashed": (
        "seed=730834 job=sessions variant=3 parallelism=1 batch=5 cramped=1 interval=1 retained=2 "
        "at_once=3 full_every=4 crashes=2 coordinators=1 window=150 failing=20 away=5 late=2 "
        "figures=0 sink=staged"
    ),
    "what one that is fenced published when its files were gone, and could not take back": (
        "seed=1002632 job=union variant=3 records=16 parallelism=1 batch=5 mode=unaligned "
        "interval=1 retained=2 crashes=3 after=2 window=60 failing=60 slow_work=5 cut_offs=2 "
        "away=5 refused=10"
    ),
    "event time of former subtasks of which others have got the records": (
        "seed=1016871 job=diamond variant=6 parallelism=3,2 batch=5 mode=timeout interval=1 "
        "figures=0 choices=300"
    ),
    "the same at the same parallelism, where splits are dealt anew": (
        "seed=324 job=pointwise variant=6 parallelism=2,1 batch=1 cramped=1 mode=timeout "
        "interval=1 retained=2 full_every=2 storage=memory stop=3 crashes=3 coordinators=1 after=2 "
        "window=60 slow_tasks=20 slow_work=5 figures=0 refused=30"
    ),
    "the same where tasks stand still behind an edge from one subtask to some": (
        "seed=105 job=pointwise variant=4 parallelism=3 cramped=1 full_every=4 storage=memory "
        "backend=rocksdb stop=3 crashes=3 coordinators=1 window=150 figures=0 sink=staged live=3 "
        "deals=50 own=3 looks=2"
    ),
    "a manifest that was never written, asked for while reads failed": (
        "seed=127262 job=running variant=8 records=8 parallelism=3 batch=5 cramped=1 interval=1 "
        "at_once=3 storage=objects crashes=1 coordinators=1 window=60 failing=60 hangs=20 "
        "cut_offs=1 away=5 late=1 figures=0 live=2 amid=1"
    ),
    "a checkpoint that was given up, came through late, and could not be removed": (
        "seed=179409 job=regions variant=11 batch=2 interval=4 stop=2 crashes=3 window=150 "
        "failing=60 slow_tasks=20 slow_work=10 commits=300 figures=0 live=2 short=1"
    ),
    "what a task writes after the sweep of one that takes over at the end": (
        "seed=274673 job=totals variant=1 parallelism=2,2 batch=1 interval=4 retained=3 crashes=3 "
        "coordinators=1 after=1 window=150 savepoints=1 sink=blind"
    ),
    "another coordinator that starts while the storage is away": (
        "seed=277904 job=totals variant=7 parallelism=3,2 batch=2 interval=1 incremental=0 "
        "retained=3 full_every=4 storage=objects backend=rocksdb ends=savepoint crashes=2 "
        "coordinators=1 after=2 window=150 failing=60 slow_work=5 cut_offs=1 away=5 late=1 "
        "partitions=2 figures=0 sink=staged"
    ),
}
