"""How alike the tasks of a run are, as matrices: which heads they have in common, and where they pull the encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwise.experiments import head_similarity
from headwise.experiments.head_files import FOLDER, damaged, read_answers
from headwise.experiments.head_schemas import SimilarityFile
from headwise.experiments.story.head_plots import BROKEN


def similarity_matrices(folder: Path) -> list[dict[str, Any]]:
    """Overlap of the tasks' most important heads beside what chance gives, and the cosines of their gradients.

    Args:
        folder: a run with RUN/heads/similarity.json.

    Returns:
        {title, rows, columns, values, notes}; nothing if the similarity was not measured.
    """
    found = read_answers(folder / FOLDER, head_similarity.NAME, folder, SimilarityFile)
    if found is None:
        return []
    content = found[0]
    try:
        return [*_overlaps(content), _gradients(content)]
    except BROKEN as error:
        raise damaged(head_similarity.NAME, folder, folder / FOLDER, error) from error


def _overlaps(content: dict[str, Any]) -> list[dict[str, Any]]:
    importance = content["importance"]
    return [
        _matrix(
            content,
            f"overlap of the {100 * float(share):g} % most important heads",
            values,
            [
                f"Heads that both tasks need most, over those that either does (Jaccard); two choices at random have "
                f"{float(importance['chance'][share]):.2f}."
            ],
        )
        for share, values in importance["overlap"].items()
    ]


def _gradients(content: dict[str, Any]) -> dict[str, Any]:
    return _matrix(
        content,
        "cosine between the gradients of the encoder",
        content["gradients"]["total"],
        ["1: both tasks pull the encoder the same way; 0: neither helps nor hinders the other."],
    )


def _matrix(content: dict[str, Any], title: str, values: list[list[Any]], notes: list[str]) -> dict[str, Any]:
    tasks = list(content["tasks"])
    return {
        "title": title,
        "rows": tasks,
        "columns": tasks,
        "values": [[None if value is None else float(value) for value in row] for row in values],
        "notes": notes,
    }
