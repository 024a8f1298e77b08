"""Texts with a score for each token as one HTML page, which needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from string import Template

from headwise.errors import InputError
from headwise.reports.token_text import Piece, ScoredText, ScoredToken, lines, printable

# The colour of a score is laid over the page, the more of it the higher the score: so one rule does for both modes.
# The colours are such that text can be read on the page and on the full colour alike (4.5 : 1 and more).
_STYLE = """
:root { color-scheme: light dark }
:root { --page: #ffffff; --ink: #1a1a1a; --faint: #424242; --heat: 120 184 255; --rule: #d0d0d0 }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171c; --ink: #f4f4f4; --faint: #d2d2d2; --heat: 24 86 168; --rule: #4a4f57 }
}
body { background: var(--page); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.3rem; overflow-wrap: anywhere }
section { border-top: 1px solid var(--rule); padding: 1rem 0 }
.text { font-size: 1.15rem; line-height: 2; margin: 0 0 .4rem; overflow-wrap: anywhere; unicode-bidi: plaintext }
.token { background: rgb(var(--heat) / var(--score)); padding: .15em 0 }
.word > :first-child { border-start-start-radius: .25em; border-end-start-radius: .25em; padding-inline-start: .15em }
.word > :last-child { border-start-end-radius: .25em; border-end-end-radius: .25em; padding-inline-end: .15em }
.left-out { color: var(--faint); font-style: italic; text-decoration: underline dotted; text-underline-offset: .2em }
.frame { color: var(--faint); font-size: .7em }
.scale { background: linear-gradient(to right, rgb(var(--heat) / 0), rgb(var(--heat) / 1));
  border: 1px solid var(--rule); display: inline-block; height: 1em; position: relative; width: 12rem }
.mark { background: var(--ink); bottom: -.25em; position: absolute; top: -.25em; width: 2px }
.classes { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; margin: .2rem 0; padding: 0 }
summary, .note, .classes { color: var(--faint); font-size: .9rem }
table { border-collapse: collapse; font-size: .9rem; margin-top: .4rem }
th, td { border-bottom: 1px solid var(--rule); padding: .1rem .8rem .1rem 0; text-align: start }
"""

# Nothing may be fetched or run, whatever a text says.
_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>$style</style>
</head>
<body>
<h1>$title</h1>
$legend
$texts
</body>
</html>
""")


def token_page(examples: Sequence[ScoredText], title: str) -> str:
    """One HTML page with the tokens of each text on a colour scale of their scores, 0 to 1.

    It opens from disk, asks for nothing from outside and runs no script. Scores are shown on hovering and in a table
    below each text; tokens that are not pooled are in italics with dots below, so colour is not needed to tell them.
    """
    if not examples:
        raise InputError("there is no text to show: give one or more.")
    sections = "\n".join(_section(text) for text in examples)
    return _PAGE.substitute(title=_clean(title), style=_STYLE, legend=_legend(examples), texts=sections)


def _legend(examples: Sequence[ScoredText]) -> str:
    thresholds = sorted({text.threshold for text in examples if text.threshold is not None})
    marks = "".join(f'<span class="mark" style="left:{100 * each:.4g}%"></span>' for each in thresholds)
    scale = f'<p class="note">Score: 0 <span class="scale" aria-hidden="true">{marks}</span> 1</p>'
    return f'{scale}\n<p class="note">{_pooling(thresholds)} Small grey tokens frame the texts and have no score.</p>'


def _pooling(thresholds: Sequence[float]) -> str:
    if not thresholds:
        return "No token is pooled here: the scores were learned beside the task."
    least = " or ".join(f"{each:.4g}" for each in thresholds)
    left_out = '<span class="left-out">in italics with dots below</span>'
    return f"Tokens are pooled from the threshold {least} on; those below it are {left_out}."


def _section(text: ScoredText) -> str:
    written = "\n".join(f'<p class="text" dir="auto">{_line(line, text)}</p>' for line in lines(text))
    classes = "".join(f"<li>{_clean(name)} {value:.1%}</li>" for name, value in text.probabilities.items())
    return f"""<section>
{written}
<p class="note">Predicted: <strong>{_clean(text.prediction)}</strong></p>
{f'<ul class="classes">{classes}</ul>' if classes else ""}
{_table(text)}
</section>"""


def _line(line: Sequence[Piece], text: ScoredText) -> str:
    """Words with a blank between them, and their pieces without."""
    words: list[list[Piece]] = []
    for piece in line:
        if piece.blank_before or not words:
            words.append([])
        words[-1].append(piece)
    return " ".join(f'<span class="word">{"".join(_piece(piece, text) for piece in word)}</span>' for word in words)


def _piece(piece: Piece, text: ScoredText) -> str:
    display, score = escape(piece.display), piece.token.score
    if score is None:
        return f'<bdi class="frame">{display}</bdi>'  # bdi: the direction of a line is that of its text
    shape = "token left-out" if _fate(piece.token, text) == "not pooled" else "token"
    title = ", ".join(part for part in (f"{score:.3f}", _fate(piece.token, text), _clean(piece.token.text)) if part)
    return f'<span class="{shape}" style="--score:{score:.3f}" title="{title}">{display}</span>'


def _fate(token: ScoredToken, text: ScoredText) -> str:
    if text.threshold is None:
        return ""
    return "pooled" if token.kept else "not pooled"


def _table(text: ScoredText) -> str:
    """The same for those who cannot hover."""
    rows = "".join(
        f"<tr><td><bdi>{_clean(token.text)}</bdi></td><td>{token.score:.3f}</td><td>{_fate(token, text)}</td></tr>"
        for token in text.tokens
        if token.score is not None
    )
    head = "<tr><th>Token</th><th>Score</th><th>Pooling</th></tr>"
    return f"<details><summary>All scores</summary><table>{head}{rows}</table></details>"


def _clean(text: str) -> str:
    return escape(printable(text))
