"""Recipes that are no good YAML, or YAML that no recipe needs."""

from __future__ import annotations

from collections.abc import Callable

from campaign.orders import BAD, OPEN, Case, Draw


def _bomb(text: str) -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return ("\n".join(lines) + "\n" + text).encode()


def _bomb_of_maps(text: str) -> bytes:
    lines = ["description: &b0 {x: 1}"]
    lines += [f"b{n}: &b{n} {{l: *b{n - 1}, r: *b{n - 1}}}" for n in range(1, 40)]
    return ("\n".join(lines) + "\n" + text).encode()


def _bomb_in_place(text: str) -> bytes:
    """A value that a recipe has, but endless."""
    start = "&c0 [1, 1, 1, 1, 1, 1, 1, 1]"
    rest = "".join(f", &c{n} [{', '.join([f'*c{n - 1}'] * 8)}]" for n in range(1, 14))
    return f"report_to: [{start}{rest}]\n{text}".encode()


# Name -> (how the file reads then, what must come of it).
TEXTS: dict[str, tuple[Callable[[str], bytes], str]] = {
    "a bomb of lists": (_bomb, BAD),
    "a bomb of maps": (_bomb_of_maps, BAD),
    "a bomb in a value": (_bomb_in_place, BAD),
    "a list that holds itself": (lambda text: b"report_to: &a [*a]\n" + text.encode(), BAD),
    "a map that holds itself": (lambda text: b"data: &a {max_length: *a}\n" + text.encode(), BAD),
    "deep lists": (lambda text: b"description: " + 5000 * b"[" + 5000 * b"]" + b"\n" + text.encode(), BAD),
    "deep maps": (lambda text: b"description: " + 3000 * b"{a: " + b"1" + 3000 * b"}" + b"\n", BAD),
    "deep indents": (lambda text: b"".join(b" " * n + b"a:\n" for n in range(2000)), BAD),
    "a Python object": (lambda text: text.encode() + b"x: !!python/object/apply:os.system ['true']\n", BAD),
    "a Python name": (lambda text: b"description: !!python/name:os.system\n" + text.encode(), BAD),
    "an unknown tag": (lambda text: b"description: !mine 3\n" + text.encode(), BAD),
    "a set": (lambda text: b"data: !!set {a, b}\n" + text.encode(), BAD),
    "an ordered map": (lambda text: b"data: !!omap [a: 1]\n" + text.encode(), BAD),
    "binary": (lambda text: b"description: !!binary aGFsbG8=\n" + text.encode(), BAD),
    "a date": (lambda text: b"description: 2024-01-01\n" + text.encode(), BAD),
    "a date as key": (lambda text: b"2024-01-01: 3\n" + text.encode(), BAD),
    "a list as key": (lambda text: b"? [a, b]\n: 3\n" + text.encode(), BAD),
    "a map as key": (lambda text: b"? {a: b}\n: 3\n" + text.encode(), BAD),
    "a number of 5000 digits": (lambda text: text.encode() + b"seed: " + 5000 * b"9" + b"\n", BAD),
    "a number in base 60": (lambda text: b"share_every: 1:30\n" + text.encode(), OPEN),
    "a key twice": (lambda text: text.encode() + text.encode(), BAD),
    "tabs": (lambda text: text.replace("  ", "\t").encode(), BAD),
    "no UTF-8": (lambda text: b"# \xff\xfe\xfa\n" + text.encode(), BAD),
    "Latin-1": (lambda text: ("description: schön\n" + text).encode("latin-1"), BAD),
    "UTF-16": (lambda text: text.encode("utf-16"), OPEN),
    "UTF-32": (lambda text: text.encode("utf-32"), BAD),
    "a byte order mark": (lambda text: b"\xef\xbb\xbf" + text.encode(), OPEN),
    "zero bytes": (lambda text: text.encode().replace(b"\n", b"\0\n"), BAD),
    "control characters": (lambda text: b"description: 'a\x07b'\n" + text.encode(), BAD),
    "only zeros": (lambda text: bytes(4096), BAD),
    "nothing": (lambda text: b"", BAD),
    "a comment only": (lambda text: b"# nothing\n", BAD),
    "a number": (lambda text: b"3\n", BAD),
    "a text": (lambda text: b"hello\n", BAD),
    "a list": (lambda text: b"- a\n- b\n", BAD),
    "null": (lambda text: b"null\n", BAD),
    "two documents": (lambda text: text.encode() + b"---\n" + text.encode(), BAD),
    "an open quote": (lambda text: text.encode() + b"description: 'open\n", BAD),
    "an open bracket": (lambda text: text.encode() + b"description: [open\n", BAD),
    "an unknown alias": (lambda text: text.encode() + b"description: *nobody\n", BAD),
    "an unknown directive": (lambda text: b"%NONE 1.0\n---\n" + text.encode(), OPEN),
    "another version": (lambda text: b"%YAML 9.9\n---\n" + text.encode(), BAD),
    "a merge of a list": (lambda text: b"<<: [1, 2]\n" + text.encode(), BAD),
    "a merge of itself": (lambda text: b"data: &a\n  <<: *a\n" + text.encode(), BAD),
    "JSON": (lambda text: b'{"task": "pairs", "nothing": [1, 2}', BAD),
    "HTML": (lambda text: b"<!DOCTYPE html><html><body>404</body></html>\n", BAD),
    "10 MB of comments": (lambda text: 100_000 * (100 * b"#" + b"\n") + text.encode(), OPEN),
    "a line of 5 MB": (lambda text: b"description: " + 5_000_000 * b"a" + b"\n" + text.encode(), OPEN),
    "a Windows file": (lambda text: text.replace("\n", "\r\n").encode(), OPEN),
}
SLOW = {"10 MB of comments", "a line of 5 MB"}  # drawn less often


def wrong_yaml(draw: Draw) -> Case | None:
    """The recipe or sweep as another text."""
    if draw.order.recipe is None:
        return None
    name = draw.chance.choice(sorted(TEXTS))
    if name in SLOW and draw.chance.random() < 0.8:
        name = "an open quote"
    file = draw.box / draw.order.recipe
    change, verdict = TEXTS[name]
    text = file.read_text(encoding="utf-8")
    # A key that the recipe has already must not stand there twice, where that is not the point.
    if name != "a key twice":
        first = change(text).split(b":", 1)[0].decode("latin-1")
        lines = text.splitlines(keepends=True)
        if any(line.startswith(f"{first}:") for line in lines) and first in ("data", "description", "share_every"):
            text = _without(text, first)
    file.write_bytes(change(text))
    return draw.case(f"{file.name}: {name}", verdict)


def _without(text: str, key: str) -> str:
    """The text of a recipe without one of its keys."""
    kept, inside = [], False
    for line in text.splitlines(keepends=True):
        if not line.startswith((" ", "-")):
            inside = line.startswith(f"{key}:")
        if not inside:
            kept.append(line)
    return "".join(kept)
