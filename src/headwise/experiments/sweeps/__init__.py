"""Sweeps and tuning: many runs of one recipe, trained by a worker pool, each exactly once."""
