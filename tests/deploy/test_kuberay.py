"""What is in deploy/: as KubeRay's schemas ask, of one version, without root, and with a program
that runs. Nothing of it is started here."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import strom
import yaml
from packaging.requirements import Requirement
from strom.api.configuration.applying import ambient_configuration, configure
from strom.api.configuration.settings import Settings
from strom.core.config import JobConfig

ROOT = Path(strom.__file__).parent
DEPLOY = ROOT / "deploy"
RESOURCES = sorted((DEPLOY / "kuberay").glob("*.yaml"))
IMAGE = "registry.example/strom:0.1.0"


@cache
def schemas() -> Any:
    """KubeRay's, strict: a field that they do not have is a mistake, as for `kubectl apply`."""
    found = json.loads((Path(__file__).parent / "kuberay" / "v1.json").read_text())
    return strict(found)


def strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [strict(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(inner) for key, inner in schema.items()}
    described = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    if described and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def check(spec: Any, kind: str, *path: str) -> None:
    """Against the schema of a kind's `spec`, or of a part of it."""
    schema = schemas()["kinds"][kind]
    for name in path:
        schema = resolved(schema)
        schema = schema["items"] if name == "[]" else schema["properties"][name]
    whole = {"definitions": schemas()["definitions"], "allOf": [schema]}
    jsonschema.Draft7Validator(whole).validate(spec)


def resolved(schema: Any) -> Any:
    reference = schema.get("$ref")
    return schemas()["definitions"][reference.rpartition("/")[2]] if reference else schema


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = [d for path in RESOURCES for d in documents(path) if d["kind"] == kind]
    return found


def pods(node: Any) -> Iterator[Any]:
    """All specs of pods in a document."""
    if isinstance(node, dict):
        if "containers" in node:
            yield node
        for inner in node.values():
            yield from pods(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from pods(inner)


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
def test_resources_are_as_kuberay_wants_them(kind: str) -> None:
    found = of_kind(kind)
    assert found["apiVersion"] == "ray.io/v1"
    assert set(found) == {"apiVersion", "kind", "metadata", "spec"}
    check(found["spec"], kind)


def test_a_mistake_would_be_found() -> None:
    for path, name in (((), "entrypoints"), (("rayClusterSpec", "headGroupSpec"), "imagee")):
        spec = of_kind("RayJob")["spec"]
        inner = spec
        for step in path:
            inner = inner[step]
        inner[name] = "x"
        with pytest.raises(jsonschema.ValidationError, match=name):
            check(spec, "RayJob")
    spec = of_kind("RayCluster")["spec"]
    spec["workerGroupSpecs"][0]["replicas"] = "two"
    with pytest.raises(jsonschema.ValidationError, match="'two' is not of type 'integer'"):
        check(spec, "RayCluster")
    spec = of_kind("RayCluster")["spec"]
    del spec["headGroupSpec"]
    with pytest.raises(jsonschema.ValidationError, match="headGroupSpec"):
        check(spec, "RayCluster")


def test_redis_is_a_pod_as_kubernetes_wants_it() -> None:
    """By the schema that KubeRay has of pods."""
    template = of_kind("StatefulSet")["spec"]["template"]
    check(template, "RayCluster", "headGroupSpec", "template")


def test_the_head_finds_redis() -> None:
    options = of_kind("RayCluster")["spec"]["gcsFaultToleranceOptions"]
    host, port = options["redisAddress"].split(":")
    service, redis = of_kind("Service"), of_kind("StatefulSet")
    assert host == service["metadata"]["name"] == redis["spec"]["serviceName"]
    assert int(port) == service["spec"]["ports"][0]["port"]
    assert service["spec"]["selector"] == redis["spec"]["template"]["metadata"]["labels"]
    (container,) = redis["spec"]["template"]["spec"]["containers"]
    theirs = container["env"][0]["valueFrom"]["secretKeyRef"]
    assert options["redisPassword"]["valueFrom"]["secretKeyRef"] == theirs


def test_nothing_runs_as_root() -> None:
    found = [pod for path in RESOURCES for document in documents(path) for pod in pods(document)]
    assert len(found) == 5
    for pod in found:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    users = re.findall(r"^USER (\S+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert users[-1] == "1000:100"


def test_volumes_that_are_mounted_are_there() -> None:
    claimed = {
        one["metadata"]["name"] for one in of_kind("StatefulSet")["spec"]["volumeClaimTemplates"]
    }
    for path in RESOURCES:
        for document in documents(path):
            for pod in pods(document):
                there = {volume["name"] for volume in pod.get("volumes", ())} | claimed
                mounted = [m["name"] for c in pod["containers"] for m in c.get("volumeMounts", ())]
                assert set(mounted) <= there, path.name


def test_image_and_resources_have_one_ray_and_one_strom() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["options"]["install_requires"].split()
    (wanted,) = [one for one in (Requirement(line) for line in lines) if one.name == "ray"]
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    pinned = set(re.findall(r"^ARG RAY=(\S+)$", dockerfile, re.MULTILINE))
    rays = set(re.findall(r'rayVersion: "(.+?)"', "".join(p.read_text() for p in RESOURCES)))
    assert rays == pinned
    assert all(wanted.specifier.contains(one) for one in pinned)
    images = {
        container["image"]
        for path in RESOURCES
        for document in documents(path)
        for pod in pods(document)
        for container in pod["containers"]
        if container["name"].startswith("ray-")
    }
    assert images == {IMAGE}
    assert IMAGE in dockerfile
    assert IMAGE.endswith(f":{setup['metadata']['version']}")
    python = re.search(r"^ARG PYTHON=py3(\d+)$", dockerfile, re.MULTILINE)
    assert python is not None
    assert f"Python :: 3.{python[1]}" in setup["metadata"]["classifiers"]


def test_what_the_image_copies_is_sent_to_the_builder() -> None:
    copied = re.findall(r"^COPY .*?(dist/\S+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    assert ignored == ["*", *(f"!{one}" for one in copied)]


def test_programs_that_are_submitted_are_told_where_tasks_listen_and_keep_state() -> None:
    spec = of_kind("RayCluster")["spec"]
    (head,) = spec["headGroupSpec"]["template"]["spec"]["containers"]
    (workers,) = spec["workerGroupSpecs"]
    (worker,) = workers["template"]["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in head["env"]}
    options = ambient_configuration(variables)
    settings = Settings.of(JobConfig())
    configure(settings, options)
    config = settings.job_config()
    assert settings.host == "ray"
    assert config.exchange.bind_host is None  # pods listen at their own addresses
    mounted = {mount["mountPath"] for mount in worker["volumeMounts"]}
    assert set(config.state.local_dirs) <= mounted


def test_the_jobs_program_runs_with_the_jobs_configuration(tmp_path: Path) -> None:
    """On the local host, with folders of this machine."""
    program = of_kind("ConfigMap")["data"]["program.py"]
    (tmp_path / "program.py").write_text(program)
    told = yaml.safe_load(of_kind("RayJob")["spec"]["runtimeEnvYAML"])["env_vars"]
    assert "STROM_CONF__STROM__HOST" in told
    assert all(isinstance(value, str) for value in told.values())
    here = {
        "STROM_CONF__STROM__HOST": "local",
        "STROM_CONF__EXECUTION__CHECKPOINTING__DIR": str(tmp_path / "checkpoints"),
        "STROM_CONF__STATE__BACKEND__ROCKSDB__LOCALDIR": str(tmp_path / "state"),
    }
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, **told, **here},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(f"{key} 100\n" for key in range(10))
