"""From claim to paper on SciFact: BM25 alone, a plain re-ranker and a guided one, by the recipes `scifact/*`.

Trained on claims of the training file with evidence, without those that are like a claim of another file; tested on the
claims of the validation file, which nothing was chosen by. All three order the same candidates, the best that BM25
finds. Runs and scores that are finished are not repeated, so the program can be stopped.
"""

import argparse
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # the shared harness

from harness import finish, progress, put_between, write_rows

from headwise.errors import HeadwiseError
from headwise.experiments.prepare import RunPaths
from headwise.experiments.recipe_files import read_recipe
from headwise.experiments.record import NAME
from headwise.experiments.run import train
from headwise.metrics.ranking import MEASURES, RankingScores, score_ranking
from headwise.retrieval.collections import choose_claims
from headwise.retrieval.evaluate import Comparison, compare_runs
from headwise.retrieval.formats import read_collection
from headwise.retrieval.rerank import read_candidates, rerank
from headwise.retrieval.search import retrieve
from headwise.retrieval.trec import read_run, write_run
from headwise.training.callbacks import Silence

SETTINGS = ("plain", "guided")
GOLDS = {"cited": "cited papers", "evidence": "papers with evidence"}
SPLIT = "validation"
START, END = "<!-- scifact -->", "<!-- /scifact -->"
Row = dict[str, Any]
Scores = dict[str, list[RankingScores]]


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the folder of SciFact")
    parser.add_argument("--work", type=Path, required=True, help="folder for runs, candidates and indexes")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--top", type=int, default=20, help="candidates of each claim")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes of both recipes")
    parser.add_argument("--output", type=Path, help="write the rows into this JSON file")
    parser.add_argument("--markdown", type=Path, help="write the tables into this page, between its marks")
    parser.add_argument("--quick", action="store_true", help="a few claims, 1 seed: tries the program only")
    parser.add_argument("--check", action="store_true", help="nothing to miss: this program has no bar")
    return parser.parse_args()


def find_candidates(options: argparse.Namespace) -> Path:
    """The candidates of all claims of the split, as a TREC run."""
    path: Path = options.work / f"bm25-top{options.top}.trec"
    if not path.is_file():
        collection = read_collection(options.data / "scifact", gold="cited")
        found = retrieve(collection, Silence(), split=SPLIT, top=options.top, cache=options.work / "cache")
        write_run(path, found.run, found.tag)
    return path


def run(setting: str, seed: int, options: argparse.Namespace) -> tuple[Row, Path]:
    """Train, then re-rank; what happened, and the file of the run."""
    recipe = read_recipe(f"scifact/{setting}", [f"seed={seed}", *options.set])
    folder = options.work / f"{recipe.name}-seed{seed}"
    paths = RunPaths(folder, options.data, cache=options.work / "cache")
    result = train(recipe, paths, resume=(folder / NAME).is_file(), command=("scifact.py",))
    if result.interrupted:
        raise KeyboardInterrupt
    output = options.work / f"{recipe.name}-seed{seed}-top{options.top}.trec"
    # Scores from before the model was trained again are not its own.
    if not output.is_file() or output.stat().st_mtime < (folder / NAME).stat().st_mtime:
        collection, cache = read_collection(options.data / "scifact", gold="cited"), options.work / "cache"
        candidates = read_candidates(find_candidates(options), collection, Silence(), split=SPLIT, cache=cache)
        ordered = rerank(folder, candidates, Silence(), cache=cache, output=output, overwrite=True)
        write_run(output, ordered.run, recipe.name)
        ordered.done()
    happened = result.record["results"]
    row = {
        "setting": setting,
        "seed": seed,
        "claims": happened["claims"],
        "pairs": happened["examples"],
        "validation_mrr": happened["metrics"]["validation"]["mrr"],
        "shares": {guide: each["share"] for guide, each in happened["guides"].items()},
    }
    progress(f"{recipe.name} seed {seed}: MRR on held-out training claims {row['validation_mrr']:.4f}")
    return row, output


def scores_of(gold: str, files: dict[str, list[Path]], options: argparse.Namespace) -> Scores:
    """Every run of every setting, by the judgements of this kind."""
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


def tests_of(scores: Scores, top: int) -> list[Comparison]:
    """Both re-rankers against BM25, and the guided one against the plain one."""
    means = {name: over_seeds(runs) for name, runs in scores.items()}
    # All order the same candidates, so recall at as many as there are is the same.
    measures = [name for name in MEASURES if name != f"recall@{top}"]
    return compare_runs(means, measures=measures, pairs=[("plain", "BM25"), ("guided", "BM25"), ("guided", "plain")])


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
    claims, pairs = rows[0]["claims"], rows[0]["pairs"]
    sizes = (
        f"Seed {rows[0]['seed']}: {claims['train']} training claims ({pairs['train']} pairs), {claims['validation']} "
        f"held out for validation; {options.top} candidates per test claim; {len(options.seeds)} seeds. In percent, "
        "mean ± standard deviation over the seeds."
    )
    parts = [START, "", sizes]
    for gold, (scores, tests) in found.items():
        parts += ["", f"### Answers: {GOLDS[gold]}", "", *table(scores), "", *tests_table(tests)]
    shares = [row["shares"] for row in rows if row["setting"] == "guided"]
    measured = ", ".join(f"{guide} {mean(each[guide] for each in shares):.3f}" for guide in shares[0])
    mrr = {name: spread([row["validation_mrr"] for row in rows if row["setting"] == name]) for name in SETTINGS}
    told = f"MRR on the held-out training claims: plain {mrr['plain']}, guided {mrr['guided']}."
    return "\n".join([*parts, "", f"{told} Gradient shares of the guides, measured: {measured}.", END])


def main() -> int:
    options = read_options()
    if options.quick:
        options.seeds, options.top = options.seeds[:1], 2
        options.set = [
            *options.set,
            "training.num_train_epochs=1",
            "data.limit={train: 4, validation: 2}",
            "task.negatives=1",
        ]
    if options.markdown and START not in options.markdown.read_text(encoding="utf-8"):
        sys.stderr.write(f"scifact: {options.markdown} has no line {START}: add it, and {END} behind it.\n")
        return 2
    options.work.mkdir(parents=True, exist_ok=True)
    try:
        files = {"BM25": [find_candidates(options)]}
        rows = []
        for seed in options.seeds:
            for setting in SETTINGS:
                row, output = run(setting, seed, options)
                rows.append(row)
                files.setdefault(setting, []).append(output)
        scores = {gold: scores_of(gold, files, options) for gold in GOLDS}
    except HeadwiseError as error:
        sys.stderr.write(f"scifact: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("scifact: stopped; the same command goes on\n")
        return 130
    found = {gold: (each, tests_of(each, options.top)) for gold, each in scores.items()}
    rows += [as_row(gold, *each) for gold, each in found.items()]
    if options.output:
        write_rows(options.output, rows)
    if options.markdown:
        text = page([row for row in rows if "setting" in row], found, options)
        put_between(options.markdown, START, END, text)
    return finish({"rows": rows, "bars": []}, options.check)


if __name__ == "__main__":
    sys.exit(main())
