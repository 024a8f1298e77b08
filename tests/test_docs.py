"""Pages that programs write are what the programs would write, and what pages show works."""

import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import yaml
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    TrainingArguments,
)

import headwise as hw
from headwise.data import build_task
from headwise.data.mark_sources import SOURCES
from headwise.experiments import check_recipe
from headwise.experiments.recipe_files import Loader
from headwise.guides import GUIDES
from headwise.patterns import PATTERNS
from headwise.training import needs_of

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.slow
def test_which_guide_is_up_to_date():
    answer = subprocess.run([sys.executable, DOCS / "which_guide.py", "--check"], check=False)
    assert answer.returncode == 0, "run `python docs/which_guide.py`"


@pytest.mark.slow
def test_reproduction_is_up_to_date():
    answer = subprocess.run([sys.executable, DOCS / "reproduction.py", "--check"], check=False)
    assert answer.returncode == 0, "run `python docs/reproduction.py`"


def test_which_guide_has_every_guide():
    text = (DOCS / "which-guide.md").read_text(encoding="utf-8")
    for name in GUIDES:
        assert f"\n## {name}\n" in text
        assert f"| [`{name}`](#{name}) |" in text


def test_every_source_of_marks_has_a_row_that_works():
    text = (DOCS / "marks.md").read_text(encoding="utf-8")
    rows = [yaml.safe_load(row) for row in re.findall(r"^\| `(\{.*?\})` \|", text, re.MULTILINE)]
    assert {next(iter(row)) for row in rows} == set(SOURCES)
    for row in rows:
        task, options = ("pairs", {"texts": ["claim", row["text"]]}) if "text" in row else ("sentences", {})
        assert build_task(task, {**options, "marks": row}).marks.source == next(iter(row))


def test_every_public_name_has_one_place_in_the_api_pages():
    pages = [page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md")]
    documented = re.findall(r"^::: headwise\.(?:\w+\.)*(\w+)$", "\n".join(pages), re.MULTILINE)
    assert sorted(documented) == sorted(name for name in hw.__all__ if name != "__version__")
    listed = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    assert [name for name in hw.__all__ if f"`{name}`" not in listed] == []


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_asks_for_nothing_from_outside(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, cwd=DOCS.parent, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        assert not re.search(r'<(script|link|img)[^>]+(src|href)="https?:', page.read_text(encoding="utf-8")), page
    text = (tmp_path / "api" / "attention.html").read_text(encoding="utf-8")
    assert 'id="headwise.attention.capture.capture"' in text


def blocks(page, language):
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_recipe_of_the_knowledge_page_is_one():
    (text,) = blocks("knowledge.md", "yaml")
    chosen = check_recipe(yaml.load("task: pairs\n" + text, Loader), "knowledge.md")
    assert [need.form for need in needs_of(chosen.guides)] == ["received", "map"]


@pytest.fixture
def _own_pattern():
    yield
    PATTERNS.remove("self")


@pytest.mark.usefixtures("_own_pattern")
def test_the_scripts_of_the_knowledge_page_run(encoder, tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    texts = [("the cat sees a dog", "a dog sees the cat"), ("the old man", "a new house")] * 4
    train = [{**tokenizer(*pair), "labels": number % 2} for number, pair in enumerate(texts)]
    model = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=2)
    script, pattern = blocks("knowledge.md", "python")
    names = {"model": model, "tokenizer": tokenizer, "train": train, "texts": texts}
    short = "max_steps=2, report_to=[], dataloader_pin_memory=False"
    exec(script.replace('TrainingArguments("run"', f'TrainingArguments("run", {short}'), names)
    assert hw.guides.last_losses(model)["match"] > 0
    hw.unguide(model)
    exec(pattern, names)
    model.train()(**tokenizer("a cat", return_tensors="pt"), labels=torch.tensor([0])).loss.backward()
    assert hw.guides.last_losses(model)["match"] > 0


def test_the_recipe_of_the_ssa_page_is_one():
    (text,) = blocks("ssa.md", "yaml")
    chosen = check_recipe(yaml.load("task: pairs\n" + text, Loader), "ssa.md")
    assert chosen.supervision == hw.SSA()  # what the page shows are the defaults
    assert list(chosen.guides) == ["mdg"]


def test_the_ssa_page_has_every_option_with_its_default():
    text = (DOCS / "ssa.md").read_text(encoding="utf-8")
    for name, value in asdict(hw.SSA()).items():
        (row,) = (line for line in text.splitlines() if re.match(rf"\| .*`{name}`", line))
        shown = {"true": True, "false": False, "": None}.get(cells := row.split("|")[2].strip(), cells)
        if name != "most_hidden":  # depends on the rule
            assert str(value) in str(shown).split(", "), row


def test_the_script_of_the_ssa_page_runs(encoder, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    (script,) = blocks("ssa.md", "python")
    settings = {"max_steps": 4, "report_to": [], "dataloader_pin_memory": False, "use_cpu": True}
    names = {
        "path": encoder,
        "tokenizer": tokenizer,
        "output": tmp_path / "model",
        "train": [
            {**tokenizer(text), "labels": number % 2} for number, text in enumerate(["a cat", "the dog sees"] * 8)
        ],
        "collator": DataCollatorWithPadding(tokenizer),
        "args": TrainingArguments(str(tmp_path), num_train_epochs=2, **settings),
    }
    exec(script, names)
    assert names["scores"].shape == (1, 6)
    assert names["model"].ssa.options == hw.SSA()


def test_the_page_of_limits_has_their_values():
    from headwise import limits
    from headwise.cli import explore_server, loopback_server, mark_server
    from headwise.data import text_files
    from headwise.experiments import recipe_files
    from headwise.experiments.sweeps import search_space, sweep_file

    text = " ".join((DOCS / "limits.md").read_text(encoding="utf-8").split())
    for expected in (
        f"{recipe_files.MAX_CHARACTERS:,} characters, {recipe_files.MAX_VALUES:,} values, "
        f"{recipe_files.MAX_DEPTH} levels",
        f"numbers up to {recipe_files.MAX_DIGITS:,} digits",
        f"{recipe_files.MAX_PARTS} parts",
        f"{sweep_file.MAX_RUNS:,} combinations, {sweep_file.MAX_BASES} files that build on each other",
        f"{search_space.MAX_VALUES:,} values for a key, {search_space.LARGEST_GRID:,} combinations of a grid",
        f"| {limits.MAX_DEPTH} levels |",
        f"| {text_files.MAX_LINE:,} characters |",
        f"| {text_files.MAX_DOCUMENT:,} characters |",
        f"{limits.MAX_RATIO} times its packed size ({limits.FREE_BYTES // 2**20} MB are always allowed), "
        f"and {limits.MAX_BYTES // 2**30} GB",
        f"at most {explore_server.LARGEST_BODY:,} bytes for `explore` and {mark_server.LARGEST_BODY:,} for `mark`",
        f"idle for {loopback_server.IDLE_SECONDS:g} seconds",
        f"may take {loopback_server.REQUEST_SECONDS:g} seconds to arrive",
        f"an answer {loopback_server.ANSWER_SECONDS:g} seconds",
        f"At most {loopback_server.CONNECTIONS} connections",
    ):
        assert expected in text
