"""The names of `pyflink.datastream.window`."""

from ..api.windows.base import (
    CountWindow as CountWindow,
    GlobalWindow as GlobalWindow,
    MergingWindowAssigner as MergingWindowAssigner,
    TimeWindow as TimeWindow,
    Trigger as Trigger,
    TriggerResult as TriggerResult,
    Window as Window,
    WindowAssigner as WindowAssigner,
)
from ..api.windows.continuous_triggers import (
    ContinuousEventTimeTrigger as ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger as ContinuousProcessingTimeTrigger,
)
from ..api.windows.count_windows import (
    CountSlidingWindowAssigner as CountSlidingWindowAssigner,
    CountTumblingWindowAssigner as CountTumblingWindowAssigner,
)
from ..api.windows.session_windows import (
    DynamicEventTimeSessionWindows as DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows as DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows as EventTimeSessionWindows,
    ProcessingTimeSessionWindows as ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor as SessionWindowTimeGapExtractor,
)
from ..api.windows.time_windows import (
    GlobalWindows as GlobalWindows,
    SlidingEventTimeWindows as SlidingEventTimeWindows,
    SlidingProcessingTimeWindows as SlidingProcessingTimeWindows,
    TumblingEventTimeWindows as TumblingEventTimeWindows,
    TumblingProcessingTimeWindows as TumblingProcessingTimeWindows,
)
from ..api.windows.triggers import (
    CountTrigger as CountTrigger,
    EventTimeTrigger as EventTimeTrigger,
    NeverTrigger as NeverTrigger,
    ProcessingTimeTrigger as ProcessingTimeTrigger,
    PurgingTrigger as PurgingTrigger,
)
