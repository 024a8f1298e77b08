"""Recipes of retrieval: which pairs they train on, and that re-rankers learn."""

import json

import numpy
import pytest
from small_collection import write_collection

from headwise.data import build_task
from headwise.errors import InputError
from headwise.experiments import check_recipe
from headwise.experiments.final_score import final_results, final_sentences
from headwise.experiments.outputs import read_outputs
from headwise.experiments.prepare import RunPaths
from headwise.experiments.run import train
from headwise.experiments.searcher import collection_of, open_searcher
from headwise.experiments.splits import read_split, read_splits
from headwise.metrics.ranking import score_ranking
from headwise.retrieval.bm25 import IndexOptions, Words, open_index
from headwise.retrieval.holdout import without_leaks
from headwise.retrieval.trec import write_run


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("root")
    write_collection(folder / "papers")
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def splits(root, cache):
    def read(*, data=None, seed=1, root=root, **options):
        task = {"name": "retrieval", "collection": "papers", "stage": "bm25", "negatives": 3, **options}
        return read_splits(check_recipe({"task": task, "data": data or {}, "seed": seed}, "test"), root, cache=cache)

    return read


def claims_of(split):
    return list(dict.fromkeys(split.groups))


def test_train_has_answers_and_hard_negatives_and_validation_all_candidates(splits):
    found = splits(data={"validation_fraction": 0.2}, validation_candidates=6)
    held = claims_of(found.validation)
    assert len(held) == 4
    assert not set(held) & set(claims_of(found.train))
    assert len(found.validation) == 4 * 6
    assert sum(found.validation.labels) == 4
    assert found.first.qrels == {"validation": {claim: {f"{claim}-yes": 1} for claim in held}}
    assert found.test is None
    assert splits().train == splits().train
    assert claims_of(splits(seed=2).validation) != claims_of(splits().validation)
    assert len(claims_of(found.train)) == 16
    assert len(found.train) == 16 * 4
    for claim in claims_of(found.train):
        rows = [place for place, group in enumerate(found.train.groups) if group == claim]
        assert [found.train.labels[place] for place in rows] == [1.0, 0.0, 0.0, 0.0]
        signs = [found.train.texts[place][1].split()[2] for place in rows]
        assert signs == ["surely", "never", "never", "never"]
        # Hard: BM25 found them, so they share the claim's words.
        words = set(found.train.texts[rows[0]][0].split())
        assert all(set(found.train.texts[row][1].split()) & words for row in rows)


def test_limits_and_fractions_count_claims_and_nest(splits):
    few = splits(data={"limit": {"train": 5, "validation": 1}})
    more = splits(data={"fraction": 0.5})
    assert len(claims_of(few.train)) == 5
    assert len(claims_of(few.validation)) == 1
    assert len(claims_of(more.train)) == 9
    assert set(claims_of(few.train)) <= set(claims_of(more.train))


def test_a_claim_like_one_of_another_split_is_not_trained_on(splits, tmp_path):
    folder = write_collection(tmp_path / "papers")
    queries = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    texts = {row["_id"]: row for row in queries}
    texts["t3"]["text"] = texts["v0"]["text"].upper() + "."
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    found = splits(root=tmp_path)
    assert "t3" not in claims_of(found.train) + claims_of(found.validation)
    assert len(claims_of(found.train)) == 17
    trained = {claim: texts[claim]["text"] for claim in claims_of(found.train)}
    assert not without_leaks(trained, {claim: row["text"] for claim, row in texts.items() if claim[0] == "v"}).removed


def test_validation_may_be_a_split_which_is_judged_by_itself_and_kept_apart_from_test(splits, tmp_path):
    found = splits(splits={"validation": "test"})
    assert {claim[0] for claim in claims_of(found.validation)} == {"v"}
    assert len(claims_of(found.train)) == 20
    folder = write_collection(tmp_path / "papers")
    header = "query-id\tcorpus-id\tscore\n"
    # v0 has another answer in test, v1 is judged there without an answer, and v3 is in dev only.
    rows = "".join(f"{claim}\t{claim}-no0\t1\n" for claim in ("v0", "v1", "v3"))
    (folder / "qrels" / "dev.tsv").write_text(header + rows)
    for judged, kept in (
        ("v0\tv0-yes\t1\nv1\tv1-yes\t0\nv2\tv2-yes\t1\n", ["v3"]),
        ("v2\tv2-yes\t1\n", ["v0", "v1", "v3"]),
    ):
        (folder / "qrels" / "test.tsv").write_text(header + judged)
        found = splits(root=tmp_path, splits={"validation": "dev"})
        assert claims_of(found.validation) == kept
    answers = [text for (_, text), label in zip(found.validation.texts, found.validation.labels, strict=True) if label]
    assert len(answers) == 3
    assert all("never" in text for text in answers)


def test_a_run_of_retrieval_has_two_splits(root, cache, monkeypatch):
    monkeypatch.setenv("HEADWISE_CACHE", str(cache))
    recipe = check_recipe({"task": {"name": "retrieval", "collection": "papers", "stage": "bm25"}}, "test")
    task, splits = build_task("retrieval", recipe.task.options), read_splits(recipe, root)
    assert read_split(recipe, task, "validation", root) == splits.validation
    assert read_split(recipe, task, "train", root) == splits.train
    with pytest.raises(InputError, match="a re-ranker has no test split"):
        read_split(recipe, task, "test", root)


def test_what_does_not_fit_is_refused(splits):
    both = {"data": {"validation_fraction": 0.2}, "splits": {"validation": "test"}}
    for options, expected in (
        ({"splits": {"train": "dev"}}, "task.splits.train is dev, which papers has no judgements for"),
        ({"splits": {"validation": "train"}}, "names train twice"),
        ({"collection": "elsewhere"}, "elsewhere"),
        (both, "both task.splits.validation and data.validation_fraction"),
    ):
        with pytest.raises(InputError, match=expected):
            splits(**options)


def trained(encoder, root, cache, output, **changes):
    recipe = {
        "task": {
            "name": "retrieval",
            "collection": "papers",
            "stage": "bm25",
            "negatives": 3,
            "validation_candidates": 6,
        },
        "model": encoder,
        "data": {"max_length": 40, "validation_fraction": 0.2},
        "training": {
            "num_train_epochs": 6,
            "per_device_train_batch_size": 8,
            "learning_rate": 0.003,
            "warmup_steps": 0,
            "per_device_eval_batch_size": 16,
        },
    }
    for name, value in changes.items():
        recipe[name] = {**recipe[name], **value} if isinstance(recipe.get(name), dict) else value
    return train(check_recipe(recipe, "test"), RunPaths(output, root, cache=cache)).record["results"]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"task": {"loss": "pairs"}, "training": {"num_train_epochs": 10}}, marks=pytest.mark.slow),
        # Once the task is learned its gradient is gone, and any guide's is larger: not measured.
        {
            "task": {"loss": "list"},
            "training": {"per_device_train_batch_size": 2},
            "guides": {"mdg": {}, "pdg": {}},
            "share_every": 0,
        },
    ],
)
def test_a_re_ranker_learns_what_bm25_cannot_see(encoder, cache, tmp_path, changes):
    write_collection(tmp_path / "papers", train=60)
    happened = trained(encoder, tmp_path, cache, tmp_path / "run", data={"validation_fraction": 0.4}, **changes)
    assert happened["claims"] == {"train": 36, "validation": 24}
    assert happened["metrics"]["validation"]["mrr"] == 1.0
    assert happened["final"]["first_stage"]["validation"]["mrr"] < 0.6
    assert happened["final"]["fit"]["weights"]["reranker"] > 0


def test_a_saved_re_ranker_has_its_outputs_and_knows_its_collection_words_and_length(encoder, root, cache, tmp_path):
    run = tmp_path / "run"
    short = {"training": {"num_train_epochs": 1}, "data": {"max_length": 24, "limit": {"test": 5}}}
    happened = trained(encoder, root, cache, run, task={"stem": "none", "splits": {"test": "test"}}, **short)
    config = json.loads((run / "config.json").read_text())
    assert len(config["id2label"]) == 1
    assert config["sentence_transformers"]["activation_fn"].endswith("Identity")
    assert json.loads((run / "tokenizer_config.json").read_text())["model_max_length"] == 24
    outputs = read_outputs(run)
    assert happened["claims"]["test"] == 5
    for split, output in outputs.items():
        rows = output["per_query"].values()
        means = {name: numpy.mean([row[name] for row in rows]) for name in happened["metrics"][split]}
        assert means == pytest.approx(happened["metrics"][split], abs=1e-12)
    assert {claim[0] for claim in outputs["test"]["per_query"]} == {"v"}
    found = collection_of(run, drop_unknown=True)
    assert (found.folder, found.drop_unknown) == (root / "papers", True)
    assert collection_of(run, write_collection(tmp_path / "other")).folder == tmp_path / "other"
    index = open_searcher(run, cache=cache).stages.index
    assert index.folder == open_index(found, IndexOptions(Words(stem="none")), cache=cache).folder
    content = json.loads((run / "headwise.json").read_text())
    content["data"] = str(tmp_path / "moved")
    (run / "headwise.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="no longer there: give its new folder as collection=FOLDER"):
        collection_of(run)


# -- the final score ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Enough claims to fit weights on, and the splits of a run on them."""
    folder = tmp_path_factory.mktemp("many")
    write_collection(folder / "papers", train=60)
    task = {"name": "retrieval", "collection": "papers", "stage": "bm25", "validation_candidates": 6}
    recipe = check_recipe({"task": task, "data": {"validation_fraction": 0.5}}, "test")
    return folder, read_splits(recipe, folder, cache=folder / "cache")


def test_a_run_is_never_worse_than_its_first_stage_whatever_the_re_ranker_says(many):
    splits = many[1]
    labels = numpy.array(splits.validation.labels)
    chance = numpy.random.default_rng(0)
    noises = chance.normal(size=(20, len(labels)))
    untrained = [*noises, numpy.zeros(len(labels)), -5 * labels, 1e6 * noises[0], -labels + 0.1 * noises[0]]
    for logits in untrained:
        metrics, _, final = final_results(splits, {"validation": logits})
        assert metrics["validation"]["ndcg@10"] >= final["first_stage"]["validation"]["ndcg@10"]
    useless = final_results(splits, {"validation": -5 * labels})
    assert useless[2]["fit"]["weights"]["reranker"] == 0
    assert useless[0] == useless[2]["first_stage"]
    said = final_sentences({"final": useless[2], "metrics": useless[0]})
    assert "final score: 1 BM25" in said[0]
    assert "the re-ranker is not used" in said[1]
    metrics, per_claim, final = final_results(splits, {"validation": 5 * labels + noises[0]})
    assert final["fit"]["weights"]["reranker"] > 0
    assert metrics["validation"]["ndcg@10"] > final["first_stage"]["validation"]["ndcg@10"] + 0.1
    assert len(per_claim["validation"]) == 30


def test_a_search_with_a_run_repeats_its_validation(encoder, cache, tmp_path, headwise):
    """The stages, the encoder, the weights, the offset and the depth are those of the run."""
    write_collection(tmp_path / "papers", train=60)
    options = {"stage": "hybrid", "loss": "list", "residual": True, "warm_up": 12, "validation_candidates": 4}
    changes = {"data": {"validation_fraction": 0.4}, "training": {"per_device_train_batch_size": 2}}
    run = tmp_path / "run"
    results = trained(encoder, tmp_path, cache, run, task=options, guides={"mdg": {}}, share_every=0, **changes)
    final = results["final"]
    assert (final["stage"], final["encoder"], final["depth"]) == ("hybrid", "builtin:minilm-l6", 4)
    assert final["offset"] > 0
    assert final["fit"]["weights"]["reranker"] > 0
    assert results["examples"]["warm_up"] == 12 * 4
    assert results["metrics"]["validation"]["ndcg@10"] > final["first_stage"]["validation"]["ndcg@10"]
    searcher, collection = open_searcher(run, cache=cache), collection_of(run)
    claims = list(read_outputs(run)["validation"]["per_query"])
    scores = searcher.scores({claim: collection.claims[claim] for claim in claims})
    run_of = {claim: each.run(searcher.score.scores(each)) for claim, each in scores.items()}
    qrels = {claim: collection.qrels["train"][claim] for claim in claims}
    assert score_ranking(qrels, run_of).strict == pytest.approx(results["metrics"]["validation"])
    assert searcher.search(collection.claims[claims[0]], top=3).read == 4
    # Given candidates are ordered by the final score, too: without its first stage a residual model ranks nothing.
    write_run(tmp_path / "first.trec", {claim: dict(list(run_of[claim].items())[:5]) for claim in claims}, "first")
    words = ("--split", "train", "--cache", cache, "--output", tmp_path / "new.trec", "--json")
    code, out, err = headwise("rerank", run, "--candidates", tmp_path / "first.trec", *words)
    assert code == 0, err
    assert json.loads(out)["score"]["weights"] == final["fit"]["weights"]


def as_scifact(folder, beir):
    """The same claims and papers as the authors of SciFact write them: an abstract ends with the word that decides."""
    papers = [json.loads(line) for line in (beir / "corpus.jsonl").read_text().splitlines()]
    claims = [json.loads(line) for line in (beir / "queries.jsonl").read_text().splitlines()]
    folder.mkdir()
    rows = [
        {"doc_id": row["_id"], "title": row["title"], "abstract": [*row["text"].split(" ", 1)[::-1]]} for row in papers
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for split, kind in (("train", "t"), ("validation", "v")):
        rows = [
            {
                "id": row["_id"],
                "claim": row["text"],
                "evidence": {f"{row['_id']}-yes": [{"sentences": [1], "label": "SUPPORT"}]},
                "cited_doc_ids": [f"{row['_id']}-yes"],
            }
            for row in claims
            if row["_id"].startswith(kind)
        ]
        (folder / f"claims_{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_sentences_with_evidence_are_marks_for_a_guide(encoder, root, cache, tmp_path):
    as_scifact(tmp_path / "papers", root / "papers")
    task = {"gold": "cited", "loss": "list", "passages": 1}
    guides = {"rationale": {"weight": 0.5}}
    data = {"validation_fraction": 0.2}
    recipe = check_recipe(
        {"task": {"name": "retrieval", "collection": "papers", "stage": "bm25", **task}, "guides": guides}, "test"
    )
    train_split = read_splits(recipe, tmp_path, cache=cache).train
    marked = [
        [text[place][start:end] for place, start, end in spans]
        for text, spans in zip(train_split.texts, train_split.spans, strict=True)
    ]
    assert [each for each, label in zip(marked, train_split.labels, strict=True) if label][0] == ["surely"]
    assert all(each == ["surely"] * len(each) for each in marked)
    assert not any(each for each, label in zip(marked, train_split.labels, strict=True) if not label)
    short = {"num_train_epochs": 2, "per_device_train_batch_size": 2, "logging_steps": 4}
    results = trained(
        encoder, tmp_path, cache, tmp_path / "run", task=task, guides=guides, data=data, training=short, share_every=0
    )
    assert results["targets"]["rationale"] > 0
    assert results["guides"]["rationale"]["last"] < results["guides"]["rationale"]["first"]
