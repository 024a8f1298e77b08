"""The README is short, and every command and script in it runs, on tiny data."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_collection import write_collection
from tiny_runs import build_tokenizer, rows, write_data, write_table
from transformers import BertConfig, BertForSequenceClassification, DataCollatorWithPadding, TrainingArguments

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for name, text in fences if name == language]


def commands():
    """The lines of blocks without a language, without their comments."""
    return [line.partition("  #")[0].strip() for block in blocks("") for line in block.splitlines()]


def test_readme_has_at_most_200_lines():
    assert len(README.splitlines()) <= 200


def test_links_lead_to_files():
    for target in re.findall(r"\]\(([^)#]+)", README):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def small_model(labels=3):
    """Six layers of twelve heads, as the README's model has."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 48}
    return BertForSequenceClassification(BertConfig(vocab_size=60, num_labels=labels, **sizes))


def test_the_attention_script_runs():
    batch = {"input_ids": torch.randint(5, 60, (2, 7)), "labels": torch.tensor([0, 1])}
    names = {"model": small_model(), "batch": batch, "loader": [batch, batch]}
    (script,) = blocks("python")
    exec(script, names)
    assert names["record"][5].shape == (2, 2, 7, 7)
    assert names["gates"].grad.shape == (6, 12)
    assert names["model"].bert.encoder.layer[2].attention.self.query.out_features == 40


def test_the_training_script_runs(tmp_path):
    tokenizer = build_tokenizer()
    path, output = tmp_path / "model", tmp_path / "output"
    small_model().save_pretrained(path)
    train = [{**tokenizer(text), "labels": number % 3} for number, text in enumerate(["a cat", "the dog sees"] * 4)]
    settings = {"max_steps": 2, "report_to": [], "dataloader_pin_memory": False, "use_cpu": True}
    names = {
        "path": path,
        "output": output,
        "args": TrainingArguments(str(tmp_path / "trainer"), **settings),
        "train": train,
        "validation": train,
        "collator": DataCollatorWithPadding(tokenizer),
    }
    (script,) = blocks("diff")
    exec("\n".join(line[2:] for line in script.splitlines()), names)
    assert BertForSequenceClassification.from_pretrained(output).config.num_labels == 3


@pytest.fixture
def folder(tmp_path):
    """The files that the README's commands read."""
    folder = tmp_path / "FOLDER"
    write_data(folder)
    header, *pairs = rows(30, 1)
    sick = [["pair_ID", "sentence_A", "sentence_B", "entailment_judgment"]]
    names = {"agree": "ENTAILMENT", "deny": "CONTRADICTION", "open": "NEUTRAL"}
    sick += [[str(number), *texts, names[label]] for number, (*texts, label) in enumerate(pairs)]
    for name in ("SICK_train", "SICK_trial", "SICK_test_annotated"):
        write_table(folder / "sick" / f"{name}.txt", sick)
    entailed = {"agree": "entailment", "deny": "not_entailment", "open": "not_entailment"}
    rte = [["index", *header]]
    rte += [[str(number), *texts, entailed[label]] for number, (*texts, label) in enumerate(pairs)]
    sentences = [["sentence", "label"], *([text, str(int(label == "agree"))] for text, _, label in pairs)]
    for split in ("train", "dev"):
        write_table(folder / "RTE" / f"{split}.tsv", rte)
        write_table(folder / "SST-2" / f"{split}.tsv", sentences)
    papers = write_collection(folder / "scifact", train=12, test=4)
    (papers / "qrels" / "validation.tsv").write_bytes((papers / "qrels" / "test.tsv").read_bytes())
    with (papers / "corpus.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"_id": "d", "title": "Vitamin D", "text": "a cat with colds"}\n')
    write_data(tmp_path / "TEXTS", "sentences")
    marked = [
        json.dumps({"sentence": text, "label": label, "marks": [[0, len(text.split()[0])]]})
        for text, label in rows(40, 0, "sentences")[1:]
    ]
    (tmp_path / "TEXTS/train.marks.jsonl").write_text("\n".join(marked) + "\n", encoding="utf-8")
    tickets = [f"{text},{topic}" for text, topic in rows(60, 2, "sentences")[1:]]
    (tmp_path / "tickets.csv").write_text("\n".join(["message,topic", *tickets]) + "\n", encoding="utf-8")
    for name in ("train.tsv", "test.tsv"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "new.tsv").write_bytes((folder / "test.tsv").read_bytes())
    return folder


def serve(words):
    """Start the server, wait for its address, and stop it with Ctrl-C."""
    command = [sys.executable, "-m", "headwise", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "http://127.0.0.1" in line:
                break
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[0]
    assert process.returncode in (0, 130), [*lines, rest]


@pytest.mark.slow
def test_every_command_runs(headwise, encoder, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    sizes = ["data.max_length=24", "training.num_train_epochs=1", "training.per_device_train_batch_size=8"]
    tiny = [word for change in (f"model={encoder}", *sizes) for word in ("--set", change)]
    few = ["--set", "data.limit={train: 12, validation: 8, test: 8}"]
    # What is added to the command, and the folder of its run.
    trained = {
        "--data": ([], "run"),
        "pairs": ([], "pairs"),
        "marked": ([], "marked"),
        "ssa/rte/hybrid": (["--set", "training.num_train_epochs=2"], "ssa"),
        "heads/check": (
            ["--set", "tasks.sst2.data.validation_fraction=0.2", "--set", "iat.start=0.5", "--set", "iat.examples=8"],
            "heads",
        ),
        "scifact/guided": ([], "ranker"),
    }
    added = {
        "train": tiny,
        "sweep": [*tiny, *few, "--seeds", "1,2", "--workers", "1"],
        "tune": [*tiny, "--trials", "2"],
        "heads prune-curve": ["--random", "1"],
        "analyze": ["--keep", "2"],
    }
    run = ""
    for line in commands():
        words = shlex.split(line)
        if words[0] != "headwise":
            # Their own tests install the package and run these targets.
            dry = ["make", "-n", words[1]]
            assert words[0] == "pip" or subprocess.run(dry, cwd=ROOT, capture_output=True).returncode == 0
            continue
        name = words[1]
        extra = list(added.get(" ".join(words[1:3]), added.get(name, [])))
        if name == "train":
            more, run = trained[words[2]]
            extra += [*more, *([] if "--output" in words else ["--output", run])]
        if name == "analyze" and not Path("PLAIN").exists():
            run = "pairs"
            plain = headwise("train", "pairs", "--data", folder, *tiny, "--set", "guides={}", "--output", "PLAIN")
            assert plain[0] == 0, plain
            assert headwise("analyze", "PLAIN", "--keep", "2")[0] == 0
        replaced = {"RUN": run, "MODEL": encoder}
        words = [replaced.get(word, word) for word in words[1:]]
        if name in ("explore", "mark"):
            serve([*words, *(["--no-browser"] if name == "mark" else [])])
            continue
        code, _, err = headwise(*words, *extra)
        assert code == 0, (line, err)
    assert {"predictions.tsv", "results", "report.html", "map.pdf", "reranked.trec", "tickets.yaml"} <= set(
        os.listdir()
    )
