"""Sections of single commands: what there is, what is done with a run, heads, knowledge, data, retrieval."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from pathlib import Path
from typing import Any

import transformers

from golden_sections.inputs import RUNS, examples, write_rows, write_yaml
from golden_sections.lab import Lab, clean, condensed, page, section, table, trec, weights
from golden_sections.models import logits

COMMANDS = """train evaluate predict tokens export list demo doctor retrieve rerank score search sweep tune compare
figure analyze report explore""".split()
GROUPS = {
    "data": ("ag-pair", "check"),
    "heads": ("patterns", "importance", "prune-curve", "dissociation", "similarity"),
    "knowledge": ("build", "show"),
}


@section("options")
def options(lab: Lab) -> Any:
    """The exit code of --help, and the options of every command."""
    every = [*COMMANDS, *(f"{group} {name}" for group, names in GROUPS.items() for name in names)]
    found = {}
    for line in every:
        code, out, _ = lab.type(f"{line} --help")
        found[line] = [code, *sorted(set(re.findall(r"--[a-z][a-z-]*", out)) - {"--help"})]
    return found


@section("list")
def list_everything(lab: Lab) -> Any:
    """By name, each as one line of text."""
    found = {}
    for kind in ("guides", "tasks", "recipes", "sweeps", "models"):
        rows = lab.json(f"list {kind}")[kind]
        found[kind] = {row.pop("name"): json.dumps(row) for row in rows}
    return found


@section("doctor")
def doctor(lab: Lab) -> Any:
    transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=20).save_pretrained("decoder")
    code, out, _ = lab.type("doctor decoder --length 32 --json")
    return {
        "encoder": lab.json("doctor encoder --length 32 --batch 4"),
        "decoder": clean(json.loads(out)) | {"code": code},
    }


# -- a run -------------------------------------------------------------------------------------------------------------


@section("evaluate")
def evaluate(lab: Lab) -> Any:
    return {
        "test": lab.json(f"evaluate {lab.run('mdg')}"),
        "train": lab.json(f"evaluate {lab.run('mdg')} --split train --batch 5"),
        "singles": lab.json(f"evaluate {lab.run('singles')} --split validation"),
        "joint": lab.json(f"evaluate {lab.run('joint-iat')}"),
        "one task": lab.json(f"evaluate {lab.run('joint-iat')} --task score"),
    }


@section("predict")
def predict(lab: Lab) -> Any:
    found = {}
    for run, source, target, more in (
        ("mdg", "pairs/test.tsv", "mdg.tsv", ""),
        ("ssa-hybrid", "pairs/test.tsv", "ssa.jsonl", ""),
        ("numbers", "numbers/test.csv", "numbers.csv", ""),
        ("options", "pairs/test.tsv", "relu.tsv", "--batch 3"),
        ("joint-iat", "several/type/test.tsv", "type.tsv", "--task type"),
    ):
        shown = lab.json(f"predict {lab.run(run)} --input {source} --output {target} {more}")
        found[run] = shown | {"table": table(Path(target))}
    return found


@section("tokens")
def tokens(lab: Lab) -> Any:
    text = "--text 'the cat surely sees .' --pair 'a dog'"
    found = {name: lab.json(f"tokens {lab.run(name)} {text}") for name in ("ssa-hybrid", "ssa-cotraining")}
    lab.json(f"tokens {lab.run('ssa-hybrid')} {text} --html tokens.html")
    return found | {"page": Path("tokens.html").read_text(encoding="utf-8")[:15].lower()}


@section("export")
def export(lab: Lab) -> Any:
    """What plain transformers loads."""
    found = {}
    for run, more in (("ssa-cotraining", ""), ("joint-iat", "--task agree")):
        found[run] = lab.json(f"export {lab.run(run)} --output exported/{run} {more}")
        plain = transformers.AutoModelForSequenceClassification.from_pretrained(f"exported/{run}").eval()
        found[run] |= {"weights": weights(f"exported/{run}"), "logits": logits(plain)}
    return found


@section("analyze")
def analyze(lab: Lab) -> Any:
    return {
        "mdg": lab.json(f"analyze {lab.copy('mdg')} --importance 20 --keep 3"),
        "next": lab.json(f"analyze {lab.copy('next')} --limit 9 --pick 4"),
        "pmi": lab.json(f"analyze {lab.copy('plain')} --pattern '{{name: pmi, window: 3}}'"),
        "joint": lab.json(f"analyze {lab.copy('joint')} --split validation"),
        "list": lab.json(f"analyze {lab.copy('list')} --split validation"),
    }


@section("report")
def report(lab: Lab) -> Any:
    """A pair of runs, a run with SSA, one task of several with its heads, a re-ranker."""
    pages = {
        "pair": f"{lab.copy('mdg')} --baseline {lab.copy('plain')}",
        "ssa": lab.copy("ssa-hybrid"),
        "heads": f"{lab.copy('joint')} --task type",
        "ranking": lab.copy("list"),
    }
    found = {}
    for name, line in pages.items():
        for run in [word for word in shlex.split(line) if word.startswith("copy")]:
            lab.json(f"analyze {run} --keep 3 --split validation --importance {0 if name == 'ranking' else 12}")
            if name == "heads":
                lab.json(f"heads dissociation {run} --percent 20 40 --resamples 100")
        shown = lab.json(f"report {line} -o {name}.html")
        found[name] = shown | page(Path(f"{name}.html").read_text(encoding="utf-8"))
    return found


@section("figure")
def figure(lab: Lab) -> Any:
    """Which files result; what they show is in other sections."""
    plain, mdg, heads = lab.copy("plain"), lab.copy("mdg"), lab.copy("joint")
    for run in (plain, mdg):
        lab.json(f"analyze {run} --keep 2")
    lab.json(f"heads dissociation {heads} --percent 20 --resamples 100")
    found = {}
    for name, line in {
        "heatmap.svg": f"heatmap {mdg} --baseline {plain}",
        "head.png": f"heatmap {mdg} --layer 1 --head 2 --example e1",
        "pca.pdf": f"pca {plain} {mdg}",
        "curves.svg": f"curves {plain} {mdg}",
        "dissociation.svg": f"dissociation {heads}",
    }.items():
        shown = lab.json(f"figure {line} -o {name}")
        found[name] = shown | {"start": Path(name).read_bytes()[:5].decode("latin-1")}
    return found


# -- heads, knowledge --------------------------------------------------------------------------------------------------


@section("heads")
def heads(lab: Lab) -> Any:
    run = lab.copy("joint")
    token = "--granularity token --normalise layer --examples 30"
    exact = "--number 1 3 --exact --no-controls --order ascending --keep-per-layer 1"
    found = {
        "patterns": lab.json(f"heads patterns {lab.run('next')} --top 1"),
        "importance": lab.json(f"heads importance {run}"),
        "importance by token": lab.json(f"heads importance {lab.copy('mdg')} {token}"),
        "prune-curve": lab.json(f"heads prune-curve {run} --percent 20 40 --random 2"),
        "exact prune-curve": lab.json(f"heads prune-curve {lab.copy('plain')} {exact}"),
        "dissociation": lab.json(f"heads dissociation {run} --resamples 200"),
        "similarity": lab.json(f"heads similarity {run}"),
    }
    return condensed(found, "null", "interval", "controls", "layer_matched", "lift_by_head")


@section("knowledge")
def knowledge(lab: Lab) -> Any:
    found = {}
    for name in ("pmi", "wordsim", "dependency"):
        words = f"{write_yaml('known.yaml', RUNS[name][0])} --data pairs --cache known"
        built, again = (lab.json(f"knowledge build {words} --workers 1") for _ in range(2))
        shown = lab.json(f"knowledge show {words} --example 3 --top 3")
        found[name] = {"built": built, "again": again["knowledge"][0]["built"], "shown": shown}
    return found


# -- data --------------------------------------------------------------------------------------------------------------


@section("data.ag-pair")
def data_ag_pair(lab: Lab) -> Any:
    found = {}
    for order in ("random", "reference"):
        shown = lab.json(f"data ag-pair --news news.tsv --out {order}.tsv --seed 3 --rounds 2 --slot-order {order}")
        digest = hashlib.sha256(Path(f"{order}.tsv").read_bytes()).hexdigest()
        found[order] = shown | {"text": digest[:16]}  # text alone, the same on every machine
    return found


@section("data.check")
def data_check(lab: Lab) -> Any:
    """Files with repeated, contradicting, swapped, leaked and nearly leaked rows."""
    rows = examples(30, 5)
    swapped = {"sentence1": rows[2]["sentence2"], "sentence2": rows[2]["sentence1"], "label": "deny"}
    near = rows[4] | {"sentence1": rows[4]["sentence1"].replace(" .", " and .")}
    write_rows(Path("checked/train.tsv"), [*rows, rows[0], rows[1] | {"label": "open"}, swapped])
    write_rows(Path("checked/test.tsv"), [*examples(12, 6), rows[3], near])
    files = "checked/train.tsv checked/test.tsv --task pairs"
    return {
        "pairs": lab.json(f"data check {files} --model encoder --max-length 16"),
        "columns": lab.json("data check train=singles/train.jsonl --texts sentence --label label"),
        "strict": lab.type(f"data check {files} --strict")[0],
    }


# -- retrieval ---------------------------------------------------------------------------------------------------------


@section("retrieval")
def retrieval(lab: Lab) -> Any:
    """Candidates, re-ranking, measures, and one claim."""
    run, more = lab.run("list"), "--split test --cache indexes"
    plain = "--stem none --stop-words none --k1 0.9 --b 0.4"
    claim = json.loads(Path("claims/queries.jsonl").read_text(encoding="utf-8").splitlines()[-1])["text"]
    found = {
        "retrieve": lab.json(f"retrieve claims {more} --top 6 --output bm25.trec"),
        "retrieve, other settings": lab.json(f"retrieve claims {more} {plain} --output other.trec"),
        "rerank": lab.json(f"rerank {run} --candidates bm25.trec {more} --output reranked.trec"),
        "score": lab.json("score bm25.trec reranked.trec --collection claims --split test", ["per_query"]),
        "score, qrels": lab.json("score reranked.trec --qrels claims.qrels", ["per_query"]),
        "search": lab.json(f"search {run} '{claim}' --explain --top 3 --cache indexes"),
    }
    return found | {"files": {name: trec(Path(f"{name}.trec")) for name in ("bm25", "other", "reranked")}}
