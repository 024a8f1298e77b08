"""Sentence frames by phenomenon and split."""
