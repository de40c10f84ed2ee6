"""Paths of the cluster as a whole: overview, configuration, task managers."""

from __future__ import annotations

import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import APIRouter
from typing_extensions import TypedDict

from ..shapes.jobs import Overview, job_counts
from ..shapes.vertices import manager_of
from .parameters import Catalog, Common

router = APIRouter(tags=["cluster"])

FLINK_VERSION = "1.20.0"
"""Whose paths and shapes these are."""

Features = TypedDict(
    "Features",
    {
        "web-submit": bool,
        "web-cancel": bool,
        "web-rescale": bool,
        "web-history": bool,
    },
)

Configuration = TypedDict(
    "Configuration",
    {
        "refresh-interval": int,
        "timezone-name": str,
        "timezone-offset": int,
        "flink-version": str,
        "flink-revision": str,
        "features": Features,
        "strom-version": str,
        "strom-kind": str,
    },
)


class Hardware(TypedDict):
    cpuCores: int
    physicalMemory: int
    freeMemory: int
    managedMemory: int


class TaskManager(TypedDict):
    """A process that runs tasks."""

    id: str
    path: str
    dataPort: int
    jmxPort: int
    timeSinceLastHeartbeat: int
    slotsNumber: int
    freeSlots: int
    totalResource: dict[str, Any]
    freeResource: dict[str, Any]
    hardware: Hardware
    memoryConfiguration: dict[str, Any]
    tasks: int
    """Subtasks that run there."""
    peakRss: int


class TaskManagers(TypedDict):
    taskmanagers: list[TaskManager]
    nodes: list[dict[str, Any]]


def strom_version() -> str:
    try:
        return version("strom")
    except PackageNotFoundError:
        return "unknown"


@router.get("/overview")
def overview(catalog: Catalog) -> Overview:
    """How many jobs there are, and how much room."""
    counts, slots = job_counts(catalog.jobs()), catalog.slots()
    return {
        "taskmanagers": len([node for node in catalog.nodes() if node.alive]),
        "slots-total": slots.total,
        "slots-available": slots.free,
        "jobs-running": counts["running"],
        "jobs-finished": counts["finished"],
        "jobs-cancelled": counts["cancelled"],
        "jobs-failed": counts["failed"],
        "flink-version": FLINK_VERSION,
        "flink-commit": "",
        "strom-version": strom_version(),
    }


@router.get("/config")
async def config(catalog: Catalog, api: Common) -> Configuration:
    """What a dashboard has to know of the server."""
    offset = time.localtime().tm_gmtoff * 1000
    alive = catalog.kind != "archive"
    return {
        "refresh-interval": 3000,
        "timezone-name": time.strftime("%Z"),
        "timezone-offset": offset,
        "flink-version": FLINK_VERSION,
        "flink-revision": "",
        "features": {
            "web-submit": api.programs is not None,
            "web-cancel": alive,
            "web-rescale": catalog.kind == "session",
            "web-history": catalog.kind == "archive",
        },
        "strom-version": strom_version(),
        "strom-kind": catalog.kind,
    }


@router.get("/taskmanagers")
def taskmanagers(catalog: Catalog) -> TaskManagers:
    """The processes that run tasks, as far as coordinators answer, and the machines there are."""
    tasks = [
        task
        for view in catalog.views_of()
        for task in view["tasks"]
        if task["host"] is not None and task["status"] == "RUNNING"
    ]
    by_process: dict[str, list[Any]] = {}
    for task in tasks:
        by_process.setdefault(manager_of(task), []).append(task)
    nodes = catalog.nodes()
    cores = {node.host: node for node in nodes}
    found: list[TaskManager] = []
    for name, mine in sorted(by_process.items()):
        node = cores.get(mine[0]["host"])
        found.append(
            {
                "id": name,
                "path": name,
                "dataPort": 0,
                "jmxPort": -1,
                "timeSinceLastHeartbeat": 0,
                "slotsNumber": 1,
                "freeSlots": 0,
                "totalResource": {},
                "freeResource": {},
                "hardware": {
                    "cpuCores": 0 if node is None else int(node.cpus),
                    "physicalMemory": 0 if node is None else node.memory,
                    "freeMemory": 0,
                    "managedMemory": 0,
                },
                "memoryConfiguration": {},
                "tasks": len(mine),
                "peakRss": max(task["process"].get("peak_rss_bytes", 0) for task in mine),
            }
        )
    machines = [
        {"id": n.id, "host": n.host, "cpus": n.cpus, "memory": n.memory, "alive": n.alive}
        for n in nodes
    ]
    return {"taskmanagers": found, "nodes": machines}
