"""From claim to paper without training: BM25, an encoder, both, and both with a re-ranker, on four collections.

    scifact   the 300 claims of the validation file, which nothing is fitted on; cited papers or papers with evidence
    cisi, nfcorpus, pubmedqa   see studies/search_sets.py

Where a collection has other judged claims (train of SciFact, dev of NFCorpus and PubMedQA), weights are fitted on them,
without those that are like a test claim. Runs that are finished are not repeated, so the program can be stopped. Rows
are written as they arrive. --reranker names a cross-encoder that exists, --run a finished run of studies/scifact.py.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from search_sets import prepared
from sweep_rows import put_part

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # the shared harness

from harness import finish, progress, write_rows

from headwise.errors import HeadwiseError
from headwise.metrics.ranking import RankingScores, score_ranking
from headwise.retrieval.collections import Collection, Document
from headwise.retrieval.evaluate import compare_runs
from headwise.retrieval.formats import read_collection
from headwise.retrieval.search import Searcher
from headwise.retrieval.trec import read_run, write_run

ROOT = Path(__file__).parents[1]
# Collection -> split of the test claims, and what counts as an answer.
SETS = {
    "scifact": ("validation", ("cited", "evidence")),
    "cisi": ("test", ("judged",)),
    "nfcorpus": ("test", ("judged",)),
    "pubmedqa": ("test", ("judged",)),
}
TITLES = {
    "scifact": "SciFact, claim to paper: gold is every paper {gold}",
    "cisi": "CISI, question to paper: gold is every judged paper",
    "nfcorpus": "NFCorpus, page title to paper: gold is every judged paper, with grades 1 to 3",
    "pubmedqa": "PubMedQA, question to abstract: gold is the abstract of the question",
}
GOLDS = {"cited": "that the claim cites", "evidence": "with evidence for or against the claim"}
MEASURES = {"mrr": "MRR", "recall@1": "R@1", "recall@20": "R@20", "ndcg@10": "nDCG@10"}
TESTED = ("mrr", "ndcg@10")
BASELINES = ("BM25", "hybrid")
# Of hybrid without training, on the cited papers of SciFact, in percent.
REQUIRED = {"mrr": 70.0, "ndcg@10": 73.0, "recall@20": 90.0}
Row = dict[str, Any]


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the folders of the collections")
    parser.add_argument("--work", type=Path, required=True, help="folder for collections, runs and indexes")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--reranker", type=Path, nargs="*", default=[], help="folders of cross-encoders that exist")
    parser.add_argument("--run", type=Path, nargs="*", default=[], help="finished runs, for SciFact only")
    parser.add_argument("--output", type=Path, default=ROOT / "studies/results/search.json", help="file of the rows")
    parser.add_argument("--tables", action="store_true", help="search nothing, use the rows that are there")
    parser.add_argument("--markdown", type=Path, help="write the tables into this page, between its marks")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="8 claims and 60 papers of each: tries the program only")
    parser.add_argument("--check", action="store_true", help="exit code 1 if SciFact misses what is required")
    return parser.parse_args()


def systems(name: str, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """System -> options of `Searcher`."""
    found: dict[str, dict[str, Any]] = {
        "BM25": {"stage": "bm25"},
        "dense": {"stage": "dense"},
        "hybrid": {"fit": "none"},
        "hybrid, alpha fitted": {"fit": "auto"},
        "hybrid, RRF": {"fusion": "rrf"},
    }
    if name == "cisi":  # has no claims to fit on
        del found["hybrid, alpha fitted"]
    found |= {f"hybrid + {folder.name}": {"reranker": folder} for folder in options.reranker}
    return found | {folder.name: {"reranker": folder} for folder in options.run if name == "scifact"}


def collection_of(name: str, gold: str, options: argparse.Namespace) -> Collection:
    folder = prepared(name, options.data, options.work / "sets")
    collection = read_collection(folder, gold="cited" if gold == "cited" else "evidence")
    return small(collection, SETS[name][0]) if options.quick else collection


def small(collection: Collection, split: str) -> Collection:
    """A few claims of each split, their papers, and some others."""
    qrels = {name: dict(list(judged.items())[:8]) for name, judged in collection.qrels.items()}
    kept = {paper for judged in qrels.values() for grades in judged.values() for paper in list(grades)}
    papers = list(collection.documents())
    kept |= {paper.id for paper in papers[:60]}

    def documents() -> Iterator[Document]:
        return (paper for paper in papers if paper.id in kept)

    return replace(collection, documents=documents, files=(), qrels=qrels)


def search(name: str, system: str, given: dict[str, Any], options: argparse.Namespace) -> tuple[Path, Row]:
    """Search for all claims; the file of the run, and what was done. Finished ones are read."""
    path = options.work / "runs" / f"{name}-{system.replace(' ', '_').replace('/', '_')}.trec"
    about = path.with_suffix(".json")
    if not about.is_file():
        split, golds = SETS[name]
        collection = collection_of(name, golds[0], options)
        begin = time.perf_counter()
        searcher = Searcher(collection, scored=split, cache=options.work / "cache", **given)
        opened = time.perf_counter()
        claims = {claim: collection.claims[claim] for claim in collection.qrels[split]}
        scores = searcher.scores(claims)
        run = {claim: each.run(searcher.score.scores(each)) for claim, each in scores.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_run(path, run, "headwise")
        row = {
            "papers": len(searcher.stages.index.corpus),
            "depth": searcher.depth,
            "score": str(searcher.score),
            "weights": searcher.score.as_data(),
            "note": searcher.score.note,
            "seconds": {"open": round(opened - begin, 1), "search": round(time.perf_counter() - opened, 1)},
        }
        about.write_text(json.dumps(row), encoding="utf-8")
        progress(f"{name}, {system}: {row['score']}")
    return path, json.loads(about.read_text(encoding="utf-8"))


def rows_of(name: str, options: argparse.Namespace) -> Iterator[Row]:
    """A row for each system and kind of gold, and then one for each test."""
    split, golds = SETS[name]
    qrels = {gold: collection_of(name, gold, options).qrels[split] for gold in golds}
    scores: dict[str, dict[str, RankingScores]] = {gold: {} for gold in golds}
    for system, given in systems(name, options).items():
        path, about = search(name, system, given, options)
        run = read_run(path)
        for gold in golds:
            found = scores[gold][system] = score_ranking(qrels[gold], run)
            means = {measure: found.strict[measure] for measure in MEASURES}
            place = {"set": name, "gold": gold, "split": split, "system": system}
            yield {**place, "claims": len(found.per_query), **means, **about}
    for gold in golds:
        names = list(scores[gold])
        pairs = [(system, base) for base in BASELINES for system in names if names.index(system) > names.index(base)]
        for test in compare_runs(scores[gold], measures=TESTED, pairs=pairs):
            yield {"set": name, "gold": gold, "test": test.as_data()}


def tables(rows: list[Row]) -> Iterator[str]:
    for name, (_, golds) in SETS.items():
        for gold in golds:
            own = [row for row in rows if (row["set"], row["gold"]) == (name, gold)]
            found, tests = [row for row in own if "system" in row], [row for row in own if "test" in row]
            if found and tests:  # the last rows of a collection that is finished
                yield from table(found, {test_key(row): row["test"] for row in tests})
    yield "MRR, recall and nDCG in percent, over all test claims: those that a system finds nothing for count 0."


def test_key(row: Row) -> tuple[str, str, str]:
    return row["test"]["run"], row["test"]["against"], row["test"]["measure"]


def table(rows: list[Row], tests: dict[tuple[str, str, str], Row]) -> Iterator[str]:
    first = rows[0]
    yield f"### {TITLES[first['set']].format(gold=GOLDS.get(first['gold']))}"
    yield ""
    yield (
        f"{first['claims']} test claims ({first['split']}), {first['papers']} papers; candidates: the best "
        f"{first['depth']} of each stage."
    )
    yield ""
    columns = [*MEASURES.values(), *(f"{MEASURES[each]} against {base}" for base in BASELINES for each in TESTED)]
    yield f"| | {' | '.join(columns)} |"
    yield "|---|" + "---:|" * len(columns)
    for row in rows:
        cells = [f"{100 * row[measure]:.1f}" for measure in MEASURES]
        for base in BASELINES:
            cells += [difference(tests.get((row["system"], base, measure))) for measure in TESTED]
        yield f"| {row['system']} | {' | '.join(cells)} |"
    yield ""
    for row in rows:
        if row["system"] not in ("BM25", "dense", "hybrid, RRF"):
            note = f" {row['note'][0].upper()}{row['note'][1:]}" if row["note"] else ""
            yield f"- {row['system']}: {row['score']}.{note}"
    yield ""


def difference(test: Row | None) -> str:
    """In points with its interval; ** where p is below 0.05 after correction."""
    if test is None:
        return ""
    text = f"{100 * test['difference']:+.1f} ({100 * test['low']:+.1f} to {100 * test['high']:+.1f})"
    return f"**{text}**" if test["p_holm"] < 0.05 else text


def bars_of(rows: list[Row]) -> list[Row]:
    bars = []
    for row in rows:
        if (row["set"], row["gold"], row.get("system")) == ("scifact", "cited", "hybrid"):
            for measure, limit in REQUIRED.items():
                value = 100 * row[measure]
                bars.append(
                    {
                        "name": f"scifact hybrid {measure}, at least",
                        "value": value,
                        "limit": limit,
                        "ok": value >= limit,
                    }
                )
    return bars


def main() -> int:
    options = read_options()
    torch.set_num_threads(options.threads)
    if options.quick:
        options.work, options.output = options.work / "quick", options.work / "quick" / "search.json"
    options.work.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    if options.output.is_file():
        rows = json.loads(options.output.read_text(encoding="utf-8"))["rows"]
    try:
        for name in () if options.tables else options.sets:
            kept, fresh = [row for row in rows if row["set"] != name], []
            for row in rows_of(name, options):
                fresh.append(row)
                rows = [*kept, *fresh]
                write_rows(options.output, rows)
    except HeadwiseError as error:
        sys.stderr.write(f"search: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("search: stopped; the same command resumes\n")
        return 130
    if options.markdown:
        put_part(options.markdown, "search", tables(rows))
    return finish({"rows": [row for row in rows if "system" in row], "bars": bars_of(rows)}, options.check)


if __name__ == "__main__":
    sys.exit(main())
