"""Who makes the runs of a sweep: processes of this machine, or a Ray cluster."""

from headwise.experiments.engines.engine import ENGINES, Board, Engine, Monitor, choose_engine

__all__ = ["ENGINES", "Board", "Engine", "Monitor", "choose_engine"]
