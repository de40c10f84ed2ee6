"""Record the schemas of KubeRay's resources that deploy/kuberay uses, for tests/deploy.

    python scripts/record_kuberay.py .../ray-operator@v1.6.0/config/crd/bases

The folder is that of the Go module github.com/ray-project/kuberay/ray-operator, as
`go mod download -json github.com/ray-project/kuberay/ray-operator@v1.6.0` names it. Kept is what
the version v1 says of `spec`; what stands there several times, as pods' templates do, is written
once.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

OUT = Path(__file__).parents[1] / "tests" / "deploy" / "kuberay" / "v1.json"
NAMES = ("rayclusters", "rayjobs")
WORTH = 200
"""Characters from which on a schema that stands there twice is written once."""


def text_of(schema: Any) -> str:
    return json.dumps(schema, sort_keys=True, separators=(",", ":"))


def specs(folder: Path) -> dict[str, Any]:
    found = {}
    for name in NAMES:
        text = (folder / f"ray.io_{name}.yaml").read_text()
        resource = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))["spec"]
        (version,) = [one for one in resource["versions"] if one["name"] == "v1"]
        schema = version["schema"]["openAPIV3Schema"]
        found[resource["names"]["kind"]] = schema["properties"]["spec"]
    return found


def count(schema: Any, seen: Counter[str]) -> None:
    """How often each object of the schemas stands there."""
    if isinstance(schema, dict):
        seen[text_of(schema)] += 1
        if seen[text_of(schema)] > 1:
            return
        for inner in schema.values():
            count(inner, seen)
    elif isinstance(schema, list):
        for inner in schema:
            count(inner, seen)


def shared(schema: Any, seen: Counter[str], names: dict[str, str], once: dict[str, Any]) -> Any:
    """The schema, with references to `once` for what stands there several times."""
    if isinstance(schema, list):
        return [shared(inner, seen, names, once) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    text = text_of(schema)
    is_schema = "type" in schema and isinstance(schema["type"], str)
    if not (is_schema and seen[text] > 1 and len(text) >= WORTH):
        return {key: shared(inner, seen, names, once) for key, inner in schema.items()}
    if text not in names:
        names[text] = f"s{len(names)}"
        inner = {key: shared(inner, seen, names, once) for key, inner in schema.items()}
        once[names[text]] = inner
    return {"$ref": f"#/definitions/{names[text]}"}


def main(folder: Path) -> None:
    found = specs(folder)
    seen: Counter[str] = Counter()
    count(found, seen)
    once: dict[str, Any] = {}
    names: dict[str, str] = {}
    kinds = {kind: shared(schema, seen, names, once) for kind, schema in found.items()}
    version = folder.parents[2].name.rpartition("@")[2]
    recorded = {"kuberay": version, "kinds": kinds, "definitions": once}
    OUT.write_text(json.dumps(recorded, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
