"""Sections of many runs: compare, sweep, tune."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from golden_sections.inputs import joint, recipe, write_yaml
from golden_sections.lab import Lab, section, weights


@section("compare")
def compare(lab: Lab) -> Any:
    """Runs of `headwise train`; a sweep is compared below."""
    line = f"compare {lab.run('plain')} {lab.run('mdg')} {lab.run('pdg')} --all-metrics --resamples 500"
    forms = ("table", "markdown", "csv", "latex")
    lines = {form: len(lab.type(f"{line} --format {form}")[1].splitlines()) for form in forms}
    return {"runs": lab.json(line), "lines": lines}


def sweep_file(name: str, data: dict[str, Any], **rest: Any) -> str:
    return write_yaml(f"{name}.yaml", {"name": name, "recipe": data, **rest})


@section("sweep")
def sweep(lab: Lab) -> Any:
    """Plain and guided, two seeds: each run once, and nothing the second time."""
    file = sweep_file(
        "tiny",
        recipe(guides={"mdg": {"weight": 0.1}}, training__epochs=2),
        grid={"system": {"plain": {"guides": {}}, "ag": None}},
        seeds=[1, 2],
        compare={"by": "system", "baseline": "plain"},
    )
    first, again = (lab.json(f"sweep {file} --data pairs --output results --workers 1 --keep-models") for _ in range(2))
    models = sorted({path.parent for path in Path("results").rglob("*.safetensors")})
    return {
        "first": first,
        "again": again,
        "compare": lab.json("compare results --resamples 500"),
        "models": len(models),
        "sha256": sorted(weights(folder)["sha256"] for folder in models),
    }


@section("sweep.axes")
def sweep_axes(lab: Lab) -> Any:
    """Sizes and layers, and the figures of both."""
    file = sweep_file(
        "axes",
        recipe(guides={"mdg": {"weight": 0.1}}, training__epochs=1),
        sizes=[0.5, 1.0],
        layers=[0, 1],
        seeds=[1],
        compare={"by": "layer", "baseline": "0", "within": ["size"]},
    )
    return {
        "sweep": lab.json(f"sweep {file} --data pairs --output axes --workers 1"),
        "compare": lab.json("compare axes --resamples 500"),
        "sizes": lab.json("figure sizes axes -o sizes.svg"),
        "layers": lab.json("figure layers axes -o layers.svg"),
    }


@section("sweep.heads")
def sweep_heads(lab: Lab) -> Any:
    """Several tasks with and without IAT, and heads measured on each model."""
    iat = {"start": 0.5, "heads": 0.3, "control": False}
    file = sweep_file(
        "joint",
        joint(training__epochs=1),
        grid={"system": {"multitask": {}, "iat": {"iat": iat}}},
        seeds=[1],
        then={"prune-curve": {"percent": [30], "random": 1}, "dissociation": {}},
        compare={"by": "system", "baseline": "multitask"},
    )
    done = lab.json(f"sweep {file} --data several --output joint-results --workers 1")
    return {"sweep": done, "compare": lab.json("compare joint-results --resamples 500")}


@section("tune")
def tune(lab: Lab) -> Any:
    file = write_yaml("tune.yaml", recipe(guides={"mdg": {"weight": 0.1}}, training__epochs=2))
    vary = "--vary 'training.learning_rate=[1e-3, 3e-3, 1e-2]' --trials 3 --no-prune"
    found = lab.json(f"tune {file} --data pairs --output tune {vary}", ["runs"])
    best = yaml.safe_load(Path("tune/best.yaml").read_text(encoding="utf-8"))
    return {"tune": found, "best": best["training"]["learning_rate"]}
