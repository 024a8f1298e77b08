"""`headwise tokens`: how much each token of a text matters, in colour."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import typer
from rich.console import Console
from rich.style import Style
from rich.text import Text

from headwise.disk import save_content
from headwise.experiments.apply import load_run, new_target
from headwise.experiments.token_scores import TokenScores, token_scores
from headwise.reports.token_page import token_page
from headwise.reports.token_text import Piece, ScoredText, ScoredToken, lines, printable
from headwise.training.quiet import quiet_libraries

TOP = 5


def show_tokens(
    folder: Path, text: str, pair: str | None, *, page: Path | None, overwrite: bool, as_json: bool
) -> None:
    """Score the tokens of a text by a run; print them, and write a page if asked."""
    endings = (".html", ".htm")
    with nullcontext() if page is None else new_target(page, overwrite=overwrite, option="--html", endings=endings):
        quiet_libraries()
        run = load_run(folder)
        found = token_scores(run, folder, text, pair)
        scored = scored_text(found)
        if found.cut:
            typer.echo(f"headwise: the text was cut to {run.recipe.data.max_length} tokens, as in training", err=True)
        if page is not None:
            save_content(page, token_page([scored], f"Tokens that matter to {run.recipe.name}"))
    if as_json:
        files = {} if page is None else {"html": str(page)}
        typer.echo(json.dumps({"run": str(folder), **scored.as_data(), **files}, indent=2, ensure_ascii=False))
        return
    _print(scored)
    if page is not None:
        typer.echo(f"saved in {page}")


def scored_text(found: TokenScores) -> ScoredText:
    """What the reports draw."""
    parts = zip(found.tokens, found.scores, found.kept, found.segments, strict=True)
    tokens = tuple(ScoredToken(*part) for part in parts)
    return ScoredText(tokens, found.prediction, found.probabilities, found.threshold, found.spelling)


def _print(scored: ScoredText) -> None:
    console = Console(highlight=False)
    colour = console.is_terminal and not console.no_color
    for line in lines(scored):
        shown = Text()
        for piece in line:
            shown.append(" " if piece.blank_before else "")
            shown.append(*_shown(piece, colour=colour))
        console.print(shown)
    chances = ", ".join(f"{name} {value:.3f}" for name, value in scored.probabilities.items())
    console.print(Text(f"prediction: {scored.prediction}" + (f" ({chances})" if chances else "")))
    strongest = sorted((token for token in scored.tokens if token.score is not None), key=lambda token: -_value(token))
    named = ", ".join(f"{printable(token.text)} {_value(token):.3f}" for token in strongest[:TOP])
    console.print(Text(f"highest scores: {named}"))
    if scored.threshold is not None:
        left_out = [token for token in strongest if not token.kept]
        console.print(
            Text(
                f"pooled: {len(strongest) - len(left_out)} of {len(strongest)} tokens (threshold {scored.threshold:g})"
            )
        )


def _shown(piece: Piece, *, colour: bool) -> tuple[str, Style]:
    """The piece on a background that grows stronger with its score; without colours, with the score behind it."""
    score = piece.token.score
    if score is None:
        return piece.display, Style(dim=True)
    if not colour:
        return f"{piece.display}({score:.2f})", Style.null()
    red, green, blue = (round(255 + (end - 255) * score) for end in (30, 110, 200))
    ink = "white" if score > 0.6 else "black"
    return piece.display, Style(color=ink, bgcolor=f"rgb({red},{green},{blue})", italic=not piece.token.kept)


def _value(token: ScoredToken) -> float:
    return token.score or 0.0
