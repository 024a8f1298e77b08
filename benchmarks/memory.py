"""Peak memory of a variant's training step, taken in a process of its own."""

import gc
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from harness import fail
from measure import SHAPES, Batch, Point, Row, Step, code_version, make_batch

# Freed blocks go back to the system at once: else the peak would depend on what the allocator happened to keep.
STRICT_ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_MMAP_THRESHOLD_": "65536"}


def memory_in_child(point: Point, variant: str, program: str = "step.py") -> dict[str, Any]:
    request = json.dumps({"point": asdict(point), "variant": variant})
    command = [sys.executable, str(Path(__file__).with_name(program)), "--memory-of", request]
    done = subprocess.run(command, env=os.environ | STRICT_ALLOCATOR, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        fail(f"the process that weighs {variant} at {point.memory_name} ended with code {done.returncode}.", 1)
    return json.loads(done.stdout.splitlines()[-1])


def peak_memory(point: Point, variant: str) -> Row:
    """Peak memory of a variant of step.py."""
    torch.set_num_threads(point.threads)
    # Gradients stay allocated between steps: they belong to the baseline, and freeing them would hide part of the peak.
    step = Step(point, variant, keep_gradients=True)
    return peak_of(step, make_batch(point, 1, 8), make_batch(point, SHAPES[point.shape].batch, point.length))


def answer_child(request: str, weigh: Callable[[Point, str], Row] = peak_memory) -> int:
    """The other side of memory_in_child."""
    asked = json.loads(request)
    print(json.dumps(weigh(Point(**asked["point"]), asked["variant"]) | {"code": code_version()}))
    return 0


def peak_of(step: Step, small: Batch, batch: Batch) -> Row:
    """Peak resident memory of two steps above weights, gradients and AdamW moments, in MB of this very process.

    Meant to run in a process of its own: what an earlier measurement left behind would count as baseline.
    """
    step.take(small)  # creates gradients and moments at next to no memory for activations
    gc.collect()
    source = reset_peak()
    baseline = read_memory("VmRSS")
    for _ in range(2):
        step.take(batch)
    above = read_memory("VmHWM") - baseline
    return {"above_baseline": round(above, 1), "baseline": round(baseline, 1), "source": source}


def reset_peak() -> str:
    """Let the kernel forget the peak so far; says which counter can be trusted from here on."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return "lifetime peak: this system cannot reset the peak, so one reached while loading hides a smaller one"
    return "VmHWM"


def read_memory(field: str) -> float:
    """VmRSS (now) or VmHWM (peak) in MB; the peak of the whole life for both where /proc is missing."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        unit = 1024**2 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    values = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    return int(values[field]) / 1024
