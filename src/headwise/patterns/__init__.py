"""Patterns: what a map could look like. A new one is one file and one line here."""
