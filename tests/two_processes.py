"""For tests that start two processes."""

import datetime
import os
import time
from pathlib import Path

import torch


def meet(rank, folder, seconds=100):
    """Let a process, number `rank` of two, find the other, as a launcher would."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", OMP_NUM_THREADS="1")
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=2,
        timeout=datetime.timedelta(seconds=seconds),
    )


def leave(folder):
    """End a process that has saved its work as `folder`/RANK.pt, once the other has saved its own.

    At once, since tidying up may never end: torch 2.13 destroys a group of processes with Python's lock in hand, while
    gloo's thread waits for that lock to let go of its last work.
    """
    deadline = time.monotonic() + 60
    while not all((Path(folder) / f"{rank}.pt").is_file() for rank in range(2)):
        if time.monotonic() > deadline:
            os._exit(1)
        time.sleep(0.01)
    os._exit(0)
