"""Paths that read jobs."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query

from ..shapes.figures import Figures, figures_of
from ..shapes.jobs import (
    Exceptions,
    JobAccumulators,
    JobConfigShape,
    JobDetails,
    JobIds,
    JobLines,
    PlanOfJob,
    exceptions_of,
    job_accumulators,
    job_config,
    job_details,
    job_line,
    plan_of,
)
from ..shapes.metrics import AGGREGATIONS, Aggregated, Metric, aggregated, job_metrics, metrics_of
from .parameters import Catalog, JobParameter, View

router = APIRouter(tags=["jobs"])

Get = Annotated[
    str | None,
    Query(max_length=4_000, description="Names, with commas between them; else which there are."),
]
Kinds = Annotated[
    str | None, Query(max_length=100, description="Of min, max, avg, sum, skew; else all.")
]

MOST_EXCEPTIONS = 20


@router.get("/jobs")
def jobs(catalog: Catalog) -> JobIds:
    """The ids of all jobs, and how they are."""
    return {"jobs": [{"id": job.id, "status": job.status} for job in catalog.jobs()]}


@router.get("/jobs/overview")
def jobs_overview(catalog: Catalog) -> JobLines:
    """All jobs, a line each."""
    now_ms = time.time_ns() // 1_000_000
    return {"jobs": [job_line(job, now_ms) for job in catalog.jobs()]}


@router.get("/jobs/metrics")
def metrics_of_jobs(
    catalog: Catalog,
    get: Get = None,
    agg: Kinds = None,
    jobs: Annotated[str | None, Query(max_length=4_000)] = None,
) -> list[Aggregated]:
    """Metrics of jobs that run, or of `jobs` (ids), taken together; without those whose
    coordinators do not answer."""
    kinds = aggregations(agg)
    ids = None if jobs is None else [one for one in jobs.split(",") if one]
    return aggregated([job_metrics(view) for view in catalog.views_of(ids)], get, kinds)


@router.get("/jobs/{jobid}")
def job(job: JobParameter, catalog: Catalog) -> JobDetails:
    """One job: its vertices and plan."""
    summary, view = catalog.both(job)
    return job_details(view, summary)


@router.get("/jobs/{jobid}/plan")
def plan(view: View) -> PlanOfJob:
    return {"plan": plan_of(view)}


@router.get("/jobs/{jobid}/config")
def job_configuration(view: View) -> JobConfigShape:
    """What the job was told, without secrets."""
    return job_config(view)


@router.get("/jobs/{jobid}/exceptions")
def exceptions(
    view: View,
    most: Annotated[int, Query(alias="maxExceptions", ge=0, le=1000)] = MOST_EXCEPTIONS,
) -> Exceptions:
    """Why attempts of the job failed, the newest first."""
    return exceptions_of(view, most)


@router.get("/jobs/{jobid}/metrics")
def metrics_of_job(view: View, get: Get = None) -> list[Metric]:
    return metrics_of(job_metrics(view), get)


@router.get("/jobs/{jobid}/accumulators")
def accumulators(view: View) -> JobAccumulators:
    """Merged over all subtasks. Those of classes of the program's own are sealed."""
    return job_accumulators(view)


@router.get("/jobs/{jobid}/figures", tags=["dashboard"])
def figures(view: View) -> Figures:
    """Rates, load, watermarks and memory of all vertices: Flink has no such path."""
    return figures_of(view)


def aggregations(agg: str | None) -> list[str]:
    """HTTPException for one that nobody knows."""
    wanted: list[Any] = (
        list(AGGREGATIONS) if agg is None else [one for one in agg.split(",") if one]
    )
    for one in wanted:
        if one not in AGGREGATIONS:
            raise HTTPException(400, f"agg: there is no '{one[:50]}': min, max, avg, sum, skew")
    return wanted
