"""The sections of tests/golden.py, which go when the restructure is over."""
