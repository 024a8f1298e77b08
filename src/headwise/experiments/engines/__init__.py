"""Who makes the runs of a sweep: processes of this machine, or a Ray cluster."""

from headwise.experiments.engines.board import Board, Monitor
from headwise.experiments.engines.choose import ENGINES, Engine, choose_engine

__all__ = ["ENGINES", "Board", "Engine", "Monitor", "choose_engine"]
