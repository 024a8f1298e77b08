"""Sweeps: a recipe, changed in every way that a file asks for, trained run by run."""
