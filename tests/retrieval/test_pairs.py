"""Pairs for a re-ranker: who is in them, in which order, and that nothing else decides."""

import logging
from collections import Counter

import pytest

from headwise.errors import InputError
from headwise.retrieval.collections import GivenPair
from headwise.retrieval.pairs import candidate_pairs, given_pairs, training_pairs

IDS = [f"d{number}" for number in range(40)]
TEXTS = {name: f"Title of {name} First of {name}. Second of {name}. Third of {name}. Last of {name}." for name in IDS}
CLAIMS = {"c2": "the second claim", "c1": "the first claim", "c3": "the third claim"}
QRELS = {"c1": {"d3": 1, "d7": 0}, "c2": {"d0": 2, "d39": 1}, "c3": {"d5": 1}}
# For every claim the documents d0, d1, ... d29.
RUN = {claim: {name: 30.0 - place for place, name in enumerate(IDS[:30])} for claim in CLAIMS}


def text_of(name):
    # A new string each time, as one that is read from a file.
    return "".join(list(TEXTS[name]))


def training(claims=CLAIMS, qrels=QRELS, run=RUN, *, text_of=text_of, seed=0, more=(), **options):
    return training_pairs(claims, qrels, run, text_of, seed=seed, more=more, **options)


def of(split, claim):
    """Label -> the documents' texts for one claim, in order."""
    rows = [
        (text[1], label)
        for text, label, group in zip(split.texts, split.labels, split.groups, strict=True)
        if group == claim
    ]
    return {wanted: [text for text, label in rows if label == wanted] for wanted in (1.0, 0.0)}


def names(texts):
    by_text = {text: name for name, text in TEXTS.items()}
    return [by_text[text] for text in texts]


def test_answers_first_then_the_others_and_claims_in_their_order():
    split = training(negatives=4)
    assert split.groups == ("c2",) * 6 + ("c1",) * 5 + ("c3",) * 5
    assert split.labels == (1.0, 1.0, *[0.0] * 4, 1.0, *[0.0] * 4, 1.0, *[0.0] * 4)
    assert all(isinstance(label, float) for label in split.labels)
    assert [text[0] for text in split.texts] == [CLAIMS[claim] for claim in split.groups]
    assert names(of(split, "c2")[1.0]) == ["d0", "d39"]
    assert names(of(split, "c1")[1.0]) == ["d3"]


@pytest.mark.parametrize("seed", range(5))
def test_others_are_different_good_candidates_and_no_answers(seed):
    split = training(negatives=5, depth=8, seed=seed)
    for claim, grades in QRELS.items():
        found = names(of(split, claim)[0.0])
        assert len(set(found)) == 5
        assert set(found) <= set(IDS[:8]) - {name for name, grade in grades.items() if grade > 0}


def test_all_candidates_in_reach_are_drawn_equally_often():
    counts = Counter(
        name for seed in range(300) for name in names(of(training(negatives=3, depth=6, seed=seed), "c3")[0.0])
    )
    # Of d0 to d4 three are drawn: 180 times each on average, with a standard deviation of 8.5.
    assert set(counts) == {"d0", "d1", "d2", "d3", "d4"}
    assert all(145 < count < 215 for count in counts.values())


def test_a_paper_judged_0_may_be_drawn():
    assert "d7" in names(of(training(negatives=29), "c1")[0.0])


def test_leaving_out_other_claims_changes_nothing():
    whole = training(negatives=3, passages=2, more=IDS)
    for claim in CLAIMS:
        alone = training(
            {claim: CLAIMS[claim]}, {claim: QRELS[claim]}, {claim: RUN[claim]}, negatives=3, passages=2, more=IDS
        )
        assert of(alone, claim) == of(whole, claim)


def test_claims_and_seeds_have_draws_of_their_own():
    split, again, other = (training(negatives=10, seed=seed) for seed in (1, 1, 2))
    assert split == again
    assert of(split, "c1")[0.0] != of(other, "c1")[0.0]
    # The same candidates, but for the answers: not the same places again.
    assert of(split, "c1")[0.0][:5] != of(split, "c3")[0.0][:5]


def test_more_negatives_or_passages_keep_those_that_were_there():
    few, many, parts = training(negatives=3), training(negatives=6), training(negatives=3, passages=2)
    assert of(many, "c1")[0.0][:3] == of(few, "c1")[0.0] == of(parts, "c1")[0.0]


def test_passages_are_further_answers():
    split = training(negatives=2, passages=2)
    answers = of(split, "c2")[1.0]
    assert names(answers[:2]) == ["d0", "d39"]
    assert len(answers) == len(set(answers)) == 6
    assert all(part in TEXTS["d0"] and part != TEXTS["d0"] for part in answers[2:4])
    assert all(part in TEXTS["d39"] and part != TEXTS["d39"] for part in answers[4:])


def test_an_answer_under_another_id_is_not_drawn():
    texts = TEXTS | {"d1": TEXTS["d3"].replace(" ", "\n ").upper(), "d2": TEXTS["d3"]}
    split = training(text_of=texts.__getitem__, negatives=29)
    drawn = of(split, "c1")[0.0]
    assert len(drawn) == 27
    assert not {texts["d1"], texts["d2"]} & set(drawn)
    assert {texts["d1"], texts["d2"]} <= set(of(split, "c3")[0.0])


def test_where_candidates_are_too_few_the_corpus_gives_the_rest():
    run = {"c1": {"d3": 3.0, "d1": 2.0, "d2": 1.0}, "c2": {}}
    split = training(run=run, negatives=6, more=IDS)
    first = names(of(split, "c1")[0.0])
    assert set(first[:2]) == {"d1", "d2"}
    for claim in CLAIMS:  # c2 has an empty list, c3 has none
        found = names(of(split, claim)[0.0])
        assert len(found) == len(set(found)) == 6
        assert not {name for name, grade in QRELS[claim].items() if grade > 0} & set(found)


def test_a_corpus_that_is_too_small_gives_all_it_has():
    split = training({"c3": "x"}, {"c3": {"d5": 1}}, {"c3": {"d4": 1.0}}, negatives=10, more=IDS[3:8])
    found = names(of(split, "c3")[0.0])
    assert found[0] == "d4"
    assert sorted(found[1:]) == ["d3", "d6", "d7"]


def test_only_what_is_drawn_of_the_corpus_is_read():
    read = []
    training_pairs(
        {"c3": "x"},
        {"c3": {"d5": 1}},
        {},
        lambda name: read.append(name) or TEXTS[name],
        negatives=4,
        seed=0,
        more=IDS,
    )
    assert len(read) <= 6


def test_a_claim_without_any_other_paper_is_left_out_and_counted(caplog):
    with caplog.at_level(logging.WARNING):
        split = training(run={"c1": {"d3": 1.0, "d8": 0.5}, "c2": {"d0": 1.0}})
    assert split.groups == ("c1", "c1")
    assert "left out 2 claims" in caplog.text


def test_each_text_is_held_once():
    split = training(negatives=29, more=IDS)
    validation = candidate_pairs(CLAIMS, RUN, QRELS, text_of)
    for each in (split, validation):
        first = {}
        assert all(first.setdefault(text[1], text[1]) is text[1] for text in each.texts)
        assert len(first) < len(each)


def test_pairs_for_validation_are_the_run_with_labels():
    run = {"c3": {"d9": 2.0, "d5": 1.0}, "c1": {"d3": 2.0, "d7": 1.5, "d0": 1.0}, "c2": {}}
    split = candidate_pairs(CLAIMS, run, QRELS, text_of)
    assert split.groups == ("c3", "c3", "c1", "c1", "c1")
    assert split.labels == (0.0, 1.0, 1.0, 0.0, 0.0)
    assert all(isinstance(label, float) for label in split.labels)
    assert split.texts[1] == ("the third claim", TEXTS["d5"])
    assert names(text[1] for text in split.texts) == ["d9", "d5", "d3", "d7", "d0"]


def rows(*given):
    return [GivenPair(claim, f"id of {text}", "".join(list(text)), relevant) for claim, text, relevant in given]


def test_given_pairs_are_grouped_with_answers_first():
    pairs = rows(
        ("c1", "no", False), ("c2", "yes", True), ("c1", "yes", True), ("c2", "no", False), ("c9", "no", False)
    )
    split = given_pairs(iter(pairs), CLAIMS)
    assert split.groups == ("c2", "c2", "c1", "c1")
    assert split.labels == (1.0, 0.0, 1.0, 0.0)
    assert split.texts[0] == ("the second claim", "yes")
    assert split.texts[0][1] is split.texts[2][1]


def test_given_pairs_have_at_most_so_many_others_and_draw_per_claim():
    pairs = rows(
        *[("c1", f"text {number}", number < 2) for number in range(30)], ("c2", "yes", True), ("c2", "no", False)
    )
    split = given_pairs(pairs, CLAIMS, negatives=5, seed=3)
    assert of(split, "c1")[1.0] == ["text 0", "text 1"]
    assert len(set(of(split, "c1")[0.0])) == 5
    alone = given_pairs(pairs[:30], {"c1": CLAIMS["c1"]}, negatives=5, seed=3)
    assert of(alone, "c1") == of(split, "c1")
    assert of(given_pairs(pairs, CLAIMS, negatives=5, seed=4), "c1")[0.0] != of(split, "c1")[0.0]


def test_a_text_given_twice_counts_once_and_as_an_answer():
    pairs = rows(("c1", "x", False), ("c1", "x", True), ("c1", "x", False), ("c1", "y", False), ("c1", "y", False))
    split = given_pairs(pairs, CLAIMS)
    assert [text[1] for text in split.texts] == ["x", "y"]
    assert split.labels == (1.0, 0.0)


def test_one_sided_given_claims_are_left_out_and_counted(caplog):
    pairs = rows(("c1", "no", False), ("c2", "yes", True), ("c3", "yes", True), ("c3", "no", False))
    with caplog.at_level(logging.WARNING):
        assert given_pairs(pairs, CLAIMS).groups == ("c3", "c3")
    assert "left out 2 claims" in caplog.text


# What is called, and words of the message.
BAD = {
    "judgement": (lambda: training({"c1": "x"}), "judgements name the claim 'c2' (2 in all), which has no text"),
    "candidate": (lambda: candidate_pairs({}, RUN, QRELS, text_of), "candidates name the claim 'c2' (3 in all)"),
    "document": (lambda: training(qrels={"c1": {"d99": 1}}), "the document 'd99' is not in the corpus"),
    "no judgements": (lambda: training(qrels={}), "no pairs to train on"),
    "no given pairs": (lambda: given_pairs([], CLAIMS), "no pairs to train on"),
    "no candidates": (lambda: candidate_pairs(CLAIMS, {"c1": {}}, QRELS, text_of), "no pairs: 1 claims"),
    "seed": (lambda: training(seed=-1), "seed: expected 0 or more, got -1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, words = BAD[case]
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert words in message
    assert message.endswith(".")
    assert "\n" not in message
