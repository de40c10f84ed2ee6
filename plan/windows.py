"""Which windows run on kernels, in which form, and why the others run row by row.

Slices serve windows of time that fire at their end or at an interval. A CountTrigger fires between
two records of a batch, and a trigger that purges before a window ends takes records out of that
window but not out of those it shares them with; slices can do neither, panes can.
"""

from __future__ import annotations

from ..api.functions.validation import is_expression
from ..api.specs.windows import (
    COLUMN_FUNCTIONS,
    AggregateWindow,
    ReduceWindow,
    WindowSpec,
)
from ..api.windows.base import WindowAssigner
from ..api.windows.continuous_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
)
from ..api.windows.count_windows import CountSlidingWindowAssigner, CountTumblingWindowAssigner
from ..api.windows.session_windows import DYNAMIC, SESSIONS
from ..api.windows.time_windows import (
    CumulateEventTimeWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from ..api.windows.triggers import (
    CountTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from ..core.keys import FunctionKey
from ..engine.graph.implementation import Implementation
from .slicing import CumulateSlicing, Slicing
from .window_forms import (
    AT_END,
    Counted,
    Counting,
    Firing,
    PaneRule,
    Panes,
    RowByRow,
    Sessions,
    Sliced,
    Ticking,
    WindowForm,
)


def window(spec: WindowSpec) -> Implementation:
    """How the spec's windows run."""
    why_not = _python(spec)
    form = None if why_not else _form(spec)
    if form is None:
        return Implementation("rows", "windows row by row", why_not or _unknown(spec), RowByRow())
    return Implementation("kernel", form.name, None, form, _remarks(spec))


def _remarks(spec: WindowSpec) -> tuple[str, ...]:
    """What of windows on kernels takes Python all the same."""
    called = []
    if isinstance(spec.key, FunctionKey):
        called.append("the key")
    assigner = spec.assigner
    if isinstance(assigner, DYNAMIC):
        extractor = assigner.extractor
        if not (isinstance(extractor, str) or is_expression(extractor)):
            called.append("the session gap")
    return tuple(called_for_each(what) for what in called)


def called_for_each(what: str) -> str:
    """The remark that there is Python for each record."""
    return f"{what} is a Python function, called record by record: name a column or an expression"


def slicing_of(assigner: WindowAssigner) -> Slicing | None:
    """How the assigner's windows are cut; None if they are not."""
    match assigner:
        case TumblingEventTimeWindows() | TumblingProcessingTimeWindows():
            return Slicing(assigner.size, assigner.size, assigner.offset)
        case SlidingEventTimeWindows() | SlidingProcessingTimeWindows():
            return Slicing(assigner.size, assigner.slide, assigner.offset)
        case CumulateEventTimeWindows():
            return CumulateSlicing(assigner.max_size, assigner.step, assigner.offset)
    return None


def _python(spec: WindowSpec) -> str | None:
    """Why it takes Python for each record; None if it need not."""
    if spec.evictor is not None:
        return (
            f"the evictor {type(spec.evictor).__name__} looks at each record of a window: windows "
            "without one fold records as they come, or have kernels"
        )
    if not isinstance(spec.function, COLUMN_FUNCTIONS):
        match spec.function:
            case ReduceWindow():
                what = "the reduce function"
            case AggregateWindow():
                what = "the aggregate function"
            case _:
                what = "the window function"
        return (
            f"{what} is Python: aggregate(name=count(), ...), min_by, max_by and top_n have kernels"
        )
    if not _is_ours(spec.assigner):
        return (
            f"the window assigner {type(spec.assigner).__name__} is Python: tumbling, sliding, "
            "cumulating, session and count windows have kernels"
        )
    trigger = spec.trigger
    while isinstance(trigger, PurgingTrigger) and _is_ours(trigger):
        trigger = trigger.nested_trigger
    if trigger is not None and not _is_ours(trigger):
        return f"the trigger {type(trigger).__name__} is Python: built-in triggers have kernels"
    return None


def _form(spec: WindowSpec) -> WindowForm | None:
    """The form on kernels; None if there is none."""
    slicing, firing = slicing_of(spec.assigner), _firing(spec)
    if slicing is not None and firing is not None:
        return Sliced(slicing) if firing == AT_END else Ticking(slicing, firing)
    if isinstance(spec.assigner, SESSIONS):
        return Sessions() if _at_end(spec) else None
    counting = _counting(spec)
    if counting is not None:
        return Counted(counting)
    rule = _pane_rule(spec)
    return Panes(slicing, rule) if slicing is not None and rule is not None else None


def _firing(spec: WindowSpec) -> Firing | None:
    """When the spec's windows fire; None if slices cannot do it exactly."""
    event_time = spec.assigner.is_event_time()
    trigger = spec.trigger or spec.assigner.get_default_trigger(None)
    purging = isinstance(trigger, PurgingTrigger)
    if isinstance(trigger, PurgingTrigger):
        trigger = trigger.nested_trigger
    match trigger:
        case EventTimeTrigger() if event_time:
            # A window that fires but once is cleared then anyway.
            return None if purging and spec.allowed_lateness_ms else AT_END
        case ProcessingTimeTrigger() if not event_time:
            return AT_END
        case ContinuousEventTimeTrigger() if event_time and not purging:
            return Firing(trigger.interval)
        case ContinuousProcessingTimeTrigger() if not purging:
            return Firing(trigger.interval, by_clock=True)
    return None


def _at_end(spec: WindowSpec) -> bool:
    """Whether sessions fire at their end; a trigger that purges then changes nothing but for late
    records."""
    trigger = spec.trigger or spec.assigner.get_default_trigger(None)
    event_time = spec.assigner.is_event_time()
    if isinstance(trigger, PurgingTrigger) and not (event_time and spec.allowed_lateness_ms):
        trigger = trigger.nested_trigger
    return isinstance(trigger, EventTimeTrigger if event_time else ProcessingTimeTrigger)


def _counting(spec: WindowSpec) -> Counting | None:
    """What the assigner and trigger count; None if they are not of these forms."""
    match spec.assigner:
        case CountTumblingWindowAssigner(size):
            counting = Counting(size, size)
        case CountSlidingWindowAssigner(size, slide):
            counting = Counting(size, slide)
        case GlobalWindows():
            return _triggered(spec)
        case _:
            return None
    default = PurgingTrigger(CountTrigger(counting.size))
    return counting if spec.trigger in (None, default) else None


def _triggered(spec: WindowSpec) -> Counting | None:
    match spec.trigger:
        case CountTrigger(count):
            return Counting(count, count, purge=False)
        case PurgingTrigger(CountTrigger(count)):
            return Counting(count, count)
        case _:
            return None


def _pane_rule(spec: WindowSpec) -> PaneRule | None:
    """When the spec's windows fire; None where slices or only the row path can do it."""
    trigger, purge = spec.trigger, False
    while isinstance(trigger, PurgingTrigger):
        trigger, purge = trigger.nested_trigger, True
    event_time = spec.assigner.is_event_time()
    match trigger:
        case CountTrigger(count):
            return PaneRule(count, purge)
        case EventTimeTrigger() if purge and event_time:
            return PaneRule()
        case ContinuousEventTimeTrigger(interval) if purge and event_time:
            return PaneRule(interval=interval)
        case ContinuousProcessingTimeTrigger(interval) if purge:
            return PaneRule(interval=interval, by_clock=True)
    return None


def _unknown(spec: WindowSpec) -> str:
    """Why there are no kernels, though function, assigner and trigger come with strom."""
    trigger = "the default trigger" if spec.trigger is None else f"{spec.trigger}"
    late = ", with allowed lateness," if spec.allowed_lateness_ms else ""
    return f"{trigger} over {type(spec.assigner).__name__}{late} has no kernels"


def _is_ours(part: object) -> bool:
    """Whether it is an assigner or a trigger as it comes with strom. A subclass may do anything."""
    return type(part).__module__.startswith(f"{__package__.rpartition('.')[0]}.api.windows.")
