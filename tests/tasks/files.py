"""Small files for the tests of retrieval."""

from data.files import json_lines, table, write

__all__ = ["json_lines", "table", "write"]
