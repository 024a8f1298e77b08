"""A finished run on the Hugging Face Hub: which of its files go there, with which card, and the upload."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils._validators import validate_repo_id

from headwise import documents
from headwise.errors import InputError
from headwise.experiments import record
from headwise.experiments.model_card import hub_name, model_card
from headwise.experiments.outputs import read_outputs

CARD = "README.md"
# What loads the model, and what it was trained with: nothing that holds texts or labels of the data.
FILES = (
    *("config.json", "*.safetensors", "*.safetensors.index.json", "log.jsonl"),
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt"),
)
# Of a run on several tasks, its other models.
FOLDERS = ("", "last", "control")


@dataclass(frozen=True)
class Upload:
    """What would be uploaded."""

    run: Path
    repo: str
    private: bool
    files: Mapping[str, Path | bytes]
    """By name in the repository; as bytes what is written for the Hub."""

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes by name."""
        return {
            name: len(each) if isinstance(each, bytes) else each.stat().st_size for name, each in self.files.items()
        }

    @property
    def card(self) -> str:
        """The model card."""
        card = self.files[CARD]
        return card.decode() if isinstance(card, bytes) else card.read_text(encoding="utf-8")


def prepare_upload(run: Path, repo: str, *, private: bool = False, card: Path | None = None) -> Upload:
    """Choose the files of a finished run, and write the card that says how to load it from the Hub; no network.

    Args:
        run: the folder of a finished run.
        repo: USER/NAME.
        private: whether a new repository is private.
        card: a model card of your own.
    """
    _check_name(repo)
    if card is not None and not card.is_file():
        raise InputError(f"card={card}: there is no such file; name a README.md, or leave it out.")
    content = _public(record.finished_record(run))
    files: dict[str, Path | bytes] = {}
    for folder in FOLDERS:
        for pattern in FILES:
            for path in sorted((run / folder).glob(pattern)):
                if path.is_file() and not path.is_symlink():
                    files[path.relative_to(run).as_posix()] = path
    if "config.json" not in files:
        raise InputError(f"{run} holds no model: it has no config.json; train again, or name another run.")
    config = documents.read(run / "config.json", record.AGAIN)
    pruned = isinstance(config, dict) and bool(config.get("headwise_pruned"))
    text = model_card(content, read_outputs(run), repo=repo, pruned=pruned)
    files[CARD] = text.encode() if card is None else card
    files[record.NAME] = (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
    return Upload(run, repo, private, dict(sorted(files.items())))


def upload(prepared: Upload) -> str:
    """Create the repository if it is new, and upload everything in one commit; returns the address of the model."""
    if huggingface_hub.is_offline_mode():
        raise InputError("HF_HUB_OFFLINE is set, so nothing can be uploaded: unset it.")
    if huggingface_hub.get_token() is None:
        raise InputError("there is no token for the Hub: run `hf auth login`, or set HF_TOKEN.")
    hub, repo = huggingface_hub.HfApi(), prepared.repo
    with _in_one_sentence(repo, hub.endpoint):
        address = hub.create_repo(repo, private=prepared.private or None, exist_ok=True)
        hub.create_commit(
            repo,
            [huggingface_hub.CommitOperationAdd(name, content) for name, content in prepared.files.items()],
            commit_message=f"Upload {prepared.run.resolve().name} with headwise",
        )
    return str(address)


def _check_name(repo: str) -> None:
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise InputError(f"repo {repo!r:.80}: {str(error).splitlines()[0].rstrip('.')}; give USER/NAME.") from None
    if "/" not in repo:
        raise InputError(f"repo {repo!r:.80}: expected USER/NAME, such as me/{repo:.60}.")


def _public(content: dict[str, Any]) -> dict[str, Any]:
    """A record without the command line and the folders of this machine."""
    recipe = dict(content["recipe"])
    if hub_name(str(recipe["model"])) is None:
        recipe["model"] = f"./{Path(str(recipe['model'])).name}"  # still a folder
    return content | {"recipe": recipe, "data": None, "command": []}


@contextmanager
def _in_one_sentence(repo: str, endpoint: str) -> Iterator[None]:
    """What the Hub or the network refuses."""
    try:
        yield
    except HfHubHTTPError as error:
        status = error.response.status_code
        hint = "check the token (`hf auth login`)" if status in (401, 403) else "try again later"
        reason = error.server_message or f"status {status}"
        raise InputError(f"{endpoint} refuses {repo} ({reason:.200}): {hint}.") from error
    except Exception as error:  # of the network, in any library below
        reason = (str(error).splitlines() or [""])[0].rstrip(".")
        raise InputError(
            f"{endpoint} cannot be reached ({type(error).__name__}: {reason:.200}): try again later."
        ) from error
