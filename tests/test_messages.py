"""Messages of the library name arguments of Python, never options of the command line."""

import ast
import re
from pathlib import Path

import headwise

PACKAGE = Path(headwise.__file__).parent
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
# Options of other programs, and a CSS property.
ALLOWED = {
    "ray_workers.py": {"--address"},
    "distributed.py": {"--multi", "--cpu", "--nproc"},
    "search_page.py": {"--score"},
    "token_page.py": {"--score"},
}


def test_no_text_of_the_library_names_an_option():
    for path in PACKAGE.rglob("*.py"):
        if "cli" not in path.relative_to(PACKAGE).parts:
            texts = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
            found = {flag for text in texts if isinstance(text, str) for flag in FLAG.findall(text)}
            assert found <= ALLOWED.get(path.name, set()), path
