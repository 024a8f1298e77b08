"""From claim to paper on SciFact: BM25, the cosine of an encoder, both, and both with a re-ranker.

Re-rankers: plain and guided, trained by the recipes `scifact/*` on claims of the training file, without those that are
like a claim of another file; and --existing, a cross-encoder as it is. Weights are fitted on training claims. Tested on
the claims of the validation file, which nothing is chosen by or fitted on. Runs and scores that are finished are not
repeated, so the program can be stopped; several can share a folder, with different --seeds or --settings.
"""

import argparse
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # the shared harness

from harness import finish, progress, put_between, write_rows

from headwise.errors import HeadwiseError
from headwise.experiments.final_score import final_sentences
from headwise.experiments.prepare import RunPaths
from headwise.experiments.recipe_files import read_recipe
from headwise.experiments.record import NAME, finished_record
from headwise.experiments.run import train
from headwise.metrics.ranking import MEASURES, RankingScores, score_ranking
from headwise.retrieval.collections import choose_claims
from headwise.retrieval.evaluate import Comparison, compare_runs
from headwise.retrieval.formats import read_collection
from headwise.retrieval.search import Searcher
from headwise.retrieval.trec import read_run, write_run

# First stages, and options of `Searcher`; alpha is fitted on the training claims.
STAGES = {"BM25": {"stage": "bm25"}, "dense": {"stage": "dense"}, "hybrid": {"stage": "hybrid", "fit": "train"}}
SETTINGS = ("plain", "guided")
EXISTING = "existing"
GOLDS = {"cited": "cited papers", "evidence": "papers with evidence"}
SPLIT = "validation"
START, END = "<!-- scifact -->", "<!-- /scifact -->"
Row = dict[str, Any]
Scores = dict[str, list[RankingScores]]


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the folder of SciFact")
    parser.add_argument("--work", type=Path, required=True, help="folder for runs and indexes")
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), help="recipes scifact/*")
    parser.add_argument("--existing", type=Path, help="folder of a cross-encoder, used without training")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes of all recipes")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, help="write the rows into this JSON file")
    parser.add_argument("--markdown", type=Path, help="write the tables into this page, between its marks")
    parser.add_argument("--quick", action="store_true", help="a few claims, 1 seed: tries the program only")
    parser.add_argument("--check", action="store_true", help="nothing to miss: this program has no bar")
    return parser.parse_args()


def search(path: Path, options: argparse.Namespace, **given: Any) -> Row:
    """Search for all claims of the split, and write the run; what the searcher says about its score."""
    collection = read_collection(options.data / "scifact", gold="cited")
    claims = choose_claims(collection, SPLIT).texts
    if options.quick:
        claims = dict(list(claims.items())[:4])
    searcher = Searcher(collection, scored=SPLIT, cache=options.work / "cache", **given)
    scores = searcher.scores(claims)
    write_run(path, {claim: each.run(searcher.score.scores(each)) for claim, each in scores.items()}, "headwise")
    return {"score": str(searcher.score), "note": searcher.score.note}


def searched(name: str, options: argparse.Namespace, **given: Any) -> tuple[Row, Path]:
    """The run of a system that needs no training; one that is there is not repeated."""
    path = options.work / f"{name}.trec"
    row: Row = {"system": name}
    if not path.is_file():
        row |= search(path, options, **given)
        progress(f"{name}: {row['score']} {row['note']}")
    return row, path


def trained(setting: str, seed: int, options: argparse.Namespace) -> tuple[Row, Path]:
    """Train, then search with the run; what happened, and the file of its ranking."""
    recipe = read_recipe(f"scifact/{setting}", [f"seed={seed}", *options.set])
    folder = options.work / f"{recipe.name}-seed{seed}"
    paths = RunPaths(folder, options.data, cache=options.work / "cache")
    if train(recipe, paths, resume=(folder / NAME).is_file(), command=("scifact.py",)).interrupted:
        raise KeyboardInterrupt
    results = finished_record(folder)["results"]
    path = folder.with_suffix(".trec")
    # Rankings from before the model was trained again are not its own.
    if not path.is_file() or path.stat().st_mtime < (folder / NAME).stat().st_mtime:
        search(path, options, reranker=folder)
    row = {
        "setting": setting,
        "seed": seed,
        "claims": results["claims"],
        "pairs": results["examples"],
        "minutes": sum(results["seconds_per_epoch"]) / 60,
        "validation": results["metrics"]["validation"],
        "first_stage": results["final"]["first_stage"]["validation"],
        "weights": results["final"]["fit"]["weights"],
        "sentences": final_sentences(results),
        "shares": {guide: each["share"] for guide, each in results["guides"].items()},
    }
    progress(f"{recipe.name} seed {seed}: {'; '.join(row['sentences'])}")
    return row, path


def scores_of(gold: str, files: dict[str, list[Path]], options: argparse.Namespace) -> Scores:
    """Every run of every system, by the judgements of this kind."""
    qrels = choose_claims(read_collection(options.data / "scifact", gold=gold), SPLIT).qrels
    if options.quick:
        qrels = {claim: grades for claim, grades in qrels.items() if claim in read_run(files["BM25"][0])}
    return {name: [score_ranking(qrels, read_run(path)) for path in paths] for name, paths in files.items()}


def over_seeds(runs: list[RankingScores]) -> RankingScores:
    """Claim by claim the mean over the seeds."""
    means = {
        claim: {name: mean(each.per_query[claim][name] for each in runs) for name in values}
        for claim, values in runs[0].per_query.items()
    }
    return RankingScores.of(means, runs[0].reachable)


def tests_of(scores: Scores) -> list[Comparison]:
    """First stages against BM25, re-rankers also against hybrid, and the guided one against the plain one."""
    means = {name: over_seeds(runs) for name, runs in scores.items()}
    pairs = [(name, "BM25") for name in scores if name != "BM25"]
    pairs += [(name, "hybrid") for name in scores if name not in STAGES]
    pairs += [(name, "plain") for name in scores if name in SETTINGS and name != "plain" and "plain" in scores]
    return compare_runs(means, pairs=pairs)


def as_row(gold: str, scores: Scores, tests: list[Comparison]) -> Row:
    return {
        "gold": gold,
        "runs": {name: [each.summary() for each in runs] for name, runs in scores.items()},
        "tests": [each.as_data() for each in tests],
    }


def table(scores: Scores) -> list[str]:
    lines = [f"| | claims | {' | '.join(MEASURES)} |", "|---|---:|" + "---:|" * len(MEASURES)]
    for name, runs in scores.items():
        counts = f"{len(runs[0].reachable)}", f"{len(runs[0].per_query)}"
        averages = (
            ("gold among the candidates", [each.found or {} for each in runs]),
            ("all", [each.strict for each in runs]),
        )
        for (what, numbers), count in zip(averages, counts, strict=True):
            cells = [spread([each[measure] for each in numbers]) for measure in MEASURES]
            lines.append(f"| {name}, {what} | {count} | {' | '.join(cells)} |")
    return lines


def spread(numbers: list[float]) -> str:
    deviation = f" ± {100 * stdev(numbers):.1f}" if len(numbers) > 1 else ""
    return f"{100 * mean(numbers):.1f}{deviation}"


def tests_table(tests: list[Comparison]) -> list[str]:
    lines = [
        "| compared | measure | difference (95 % interval) | p | p, Holm | claims better / worse / equal |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for each in tests:
        test = each.test
        interval = f"{100 * test.difference:+.1f} ({100 * test.low:+.1f} to {100 * test.high:+.1f})"
        counts = f"{test.better} / {test.worse} / {test.equal}"
        names = f"{each.run} against {each.against}"
        lines.append(f"| {names} | {each.measure} | {interval} | {test.p:.4f} | {each.p_holm:.4f} | {counts} |")
    return lines


def page(rows: list[Row], found: dict[str, tuple[Scores, list[Comparison]]], options: argparse.Namespace) -> str:
    parts = [START, ""]
    trained_rows = [row for row in rows if "setting" in row]
    if trained_rows:
        first = trained_rows[0]
        parts.append(
            f"Seed {first['seed']}: {first['claims']['train']} training claims ({first['pairs']['train']} pairs), "
            f"{first['claims']['validation']} held out for validation; {len(options.seeds)} seeds. In percent, mean ± "
            "standard deviation over the seeds. Tested on the claims of the validation file."
        )
    for gold, (scores, tests) in found.items():
        parts += ["", f"### Answers: {GOLDS[gold]}", "", *table(scores), "", *tests_table(tests)]
    lines = [f"- {row['setting']}, seed {row['seed']}: {'; '.join(row['sentences'])}" for row in trained_rows]
    return "\n".join([*parts, "", *lines, END])


def main() -> int:
    options = read_options()
    torch.set_num_threads(options.threads)
    if options.quick:
        options.seeds = options.seeds[:1]
        options.set = [
            *options.set,
            "training.max_steps=2",
            "data.limit={train: 4, validation: 2}",
            "task.negatives=1",
            "task.warm_up=2",
            "task.validation_candidates=2",
        ]
    if options.markdown and START not in options.markdown.read_text(encoding="utf-8"):
        sys.stderr.write(f"scifact: {options.markdown} has no line {START}: add it, and {END} behind it.\n")
        return 2
    options.work.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    files: dict[str, list[Path]] = {}
    try:
        systems: dict[str, Row] = dict(STAGES)
        if options.existing:
            systems[EXISTING] = {"reranker": options.existing, "fit": "train"}
        for name, given in systems.items():
            row, path = searched(name, options, **given)
            rows.append(row)
            files[name] = [path]
        for seed in options.seeds:
            for setting in options.settings:
                row, path = trained(setting, seed, options)
                rows.append(row)
                files.setdefault(setting, []).append(path)
        scores = {gold: scores_of(gold, files, options) for gold in GOLDS}
    except HeadwiseError as error:
        sys.stderr.write(f"scifact: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("scifact: stopped; the same command resumes\n")
        return 130
    found = {gold: (each, tests_of(each)) for gold, each in scores.items()}
    rows += [as_row(gold, *each) for gold, each in found.items()]
    if options.output:
        write_rows(options.output, rows)
    if options.markdown:
        put_between(options.markdown, START, END, page(rows, found, options))
    return finish({"rows": rows, "bars": []}, options.check)


if __name__ == "__main__":
    sys.exit(main())
