"""What one subtask reported, as one flat dict under Flink's names.

<name>                  of the task: what it does with its time, records and bytes
<operator>.<name>       of one of its operators: strom's own figures, counters, gauges, meters
                        (their rate) and distributions (`<name>_count`, `<name>_p99`, ...)
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ...core.texts import encodable
from ...operators.user_metrics import merged_distribution
from ..graph.model import ChainedOperator, JobVertex
from .flink_names import PENDING, operator_figures

MOST_TEXT: Final = 200
"""Characters of what a gauge says, if that is text."""

MOST_INT: Final = 1 << 64
"""Greater whole numbers are none that readers of JSON know; Python does not even write all."""

_REPLACED: Final = re.compile(r"[ .:,]")


def task_figures(report: Mapping[str, Any], vertex: JobVertex) -> dict[str, Any]:
    """JSON-able: numbers, text and None. `report`: {} while the task has not said anything."""
    operators = report.get("operators", {})
    found: dict[str, Any] = dict(report.get("times", {}))
    if "exchange" in report:
        found["numBytesOut"] = report["exchange"].bytes_sent
        found["inFlightBytes"] = report["exchange"].in_flight_bytes
    head = operators.get(vertex.operators[0].operator_id)
    if head is not None:
        own = operator_figures(head)
        for name in ("numRecordsIn", "numRecordsInPerSecond", "currentInputWatermark"):
            found[name] = own[name]
    last = [o.operator_id for o in leaving(vertex)]
    known = [operator_figures(operators[one]) for one in last if one in operators]
    if known:
        for name in ("numRecordsOut", "numRecordsOutPerSecond"):
            found[name] = sum(one[name] for one in known)
    labels = operator_labels((o.operator_id, o.name) for o in vertex.operators)
    for operator in vertex.operators:
        figures = operators.get(operator.operator_id)
        if figures is None:
            continue
        label = labels[operator.operator_id]
        found |= {f"{label}.{name}": value for name, value in _of_operator(figures).items()}
    return {encodable(name): _plain(value) for name, value in found.items()}


def leaving(vertex: JobVertex) -> Sequence[ChainedOperator]:
    """The operators whose records leave the chain; the last one, if none do."""
    return [o for o in vertex.operators if o.outer] or vertex.operators[-1:]


def load_figures(
    report: Mapping[str, Any], operators: Sequence[tuple[str, str, bool]]
) -> dict[str, Any]:
    """Of `task_figures` those that a load is made of: for whoever looks at all tasks often.
    `operators`: of the chain their ids, labels, and whether records leave it there."""
    known = report.get("operators", {})
    found: dict[str, Any] = dict(report.get("times", {}))
    first, label, _ = operators[0]
    if (head := known.get(first)) is not None:
        found["numRecordsIn"] = head["records_in"]
        found[f"{label}.numRecordsOut"] = head["records_out"]
        pending = next((head["gauges"][name] for name in PENDING if name in head["gauges"]), None)
        if pending is not None:
            found[f"{label}.pendingRecords"] = pending
    left = [known[one]["records_out"] for one, _, outer in operators if outer and one in known]
    return found | ({"numRecordsOut": sum(left)} if left else {})


def operator_labels(operators: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What the figures of a vertex's operators (id, name) have in front, by their ids."""
    known = list(operators)
    shared = Counter(name for _, name in known)
    return {
        operator: _REPLACED.sub("_", name if shared[name] == 1 else f"{name} ({operator})")
        for operator, name in known
    }


def _of_operator(figures: Mapping[str, Any]) -> dict[str, Any]:
    found = operator_figures(figures)
    found |= figures["counters"] | figures["gauges"] | figures.get("user_gauges", {})
    found |= {name: meter["rate"] for name, meter in figures.get("meters", {}).items()}
    for name, report in figures.get("distributions", {}).items():
        merged = merged_distribution([report])
        found |= {f"{name}_{figure}": value for figure, value in merged.items()}
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int) and abs(value) > MOST_INT:
        return "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, (bool, int)):
        return value
    return encodable(str(value)[:MOST_TEXT])
