"""Pairs for a re-ranker, and the sentences and passages in them."""

import logging
from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from retrieval.small_collections import refusal

from headwise.retrieval.collections import GivenPair
from headwise.retrieval.pairs import candidate_pairs, draw_passages, given_pairs, split_sentences, training_pairs

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


def test_answers_come_first_then_others_that_are_good_candidates():
    split = training(negatives=5, depth=8, seed=3)
    assert split.groups == ("c2",) * 7 + ("c1",) * 6 + ("c3",) * 6
    assert split.labels == (1.0, 1.0, *[0.0] * 5, 1.0, *[0.0] * 5, 1.0, *[0.0] * 5)
    assert all(isinstance(label, float) for label in split.labels)
    assert [text[0] for text in split.texts] == [CLAIMS[claim] for claim in split.groups]
    assert names(of(split, "c2")[1.0]) == ["d0", "d39"]
    for claim, grades in QRELS.items():
        others = names(of(split, claim)[0.0])
        assert len(set(others)) == 5
        assert set(others) <= set(IDS[:8]) - {name for name, grade in grades.items() if grade > 0}
    assert "d7" in names(of(training(negatives=29), "c1")[0.0])  # judged 0


def test_all_candidates_in_reach_are_drawn_equally_often():
    counts = Counter(
        name for seed in range(300) for name in names(of(training(negatives=3, depth=6, seed=seed), "c3")[0.0])
    )
    # Of d0 to d4 three are drawn: 180 times each on average, with a standard deviation of 8.5.
    assert set(counts) == {"d0", "d1", "d2", "d3", "d4"}
    assert all(145 < count < 215 for count in counts.values())


def test_pairs_of_a_claim_depend_on_the_seed_and_not_on_other_claims_or_amounts():
    whole = training(negatives=3, passages=2, more=IDS)
    for claim in CLAIMS:
        one = {claim: CLAIMS[claim]}, {claim: QRELS[claim]}, {claim: RUN[claim]}
        assert of(training(*one, negatives=3, passages=2, more=IDS), claim) == of(whole, claim)
    few, many = training(negatives=3), training(negatives=6)
    assert of(many, "c1")[0.0][:3] == of(few, "c1")[0.0] == of(whole, "c1")[0.0]
    assert of(training(negatives=6, seed=2), "c1")[0.0] != of(many, "c1")[0.0] != of(many, "c3")[0.0]


def test_passages_are_further_answers():
    answers = of(training(negatives=2, passages=2), "c2")[1.0]
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
    read = []
    run = {"c1": {"d3": 3.0, "d1": 2.0, "d2": 1.0}, "c2": {}}
    split = training(run=run, text_of=lambda name: read.append(name) or TEXTS[name], negatives=6, more=IDS)
    assert set(names(of(split, "c1")[0.0])[:2]) == {"d1", "d2"}
    assert len(read) <= 25  # only what is drawn is read
    for claim in CLAIMS:  # c2 has an empty list, c3 has none
        others = names(of(split, claim)[0.0])
        assert len(others) == len(set(others)) == 6
        assert not {name for name, grade in QRELS[claim].items() if grade > 0} & set(others)
    small = training({"c3": "x"}, {"c3": {"d5": 1}}, {"c3": {"d4": 1.0}}, negatives=10, more=IDS[3:8])
    assert sorted(names(of(small, "c3")[0.0])) == ["d3", "d4", "d6", "d7"]


def test_claims_without_both_labels_are_left_out_and_counted(caplog):
    with caplog.at_level(logging.WARNING):
        split = training(run={"c1": {"d3": 1.0, "d8": 0.5}, "c2": {"d0": 1.0}})
    assert split.groups == ("c1", "c1")
    assert "left out 2 claims" in caplog.text


def test_pairs_for_validation_are_the_run_with_labels():
    run = {"c3": {"d9": 2.0, "d5": 1.0}, "c1": {"d3": 2.0, "d7": 1.5, "d0": 1.0}, "c2": {}}
    split = candidate_pairs(CLAIMS, run, QRELS, text_of)
    assert split.groups == ("c3", "c3", "c1", "c1", "c1")
    assert split.labels == (0.0, 1.0, 1.0, 0.0, 0.0)
    assert all(isinstance(label, float) for label in split.labels)
    assert split.texts[1] == ("the third claim", TEXTS["d5"])
    assert names(text[1] for text in split.texts) == ["d9", "d5", "d3", "d7", "d0"]


def test_each_text_is_held_once():
    for split in (training(negatives=29, more=IDS), candidate_pairs(CLAIMS, RUN, QRELS, text_of)):
        first = {}
        assert all(first.setdefault(text[1], text[1]) is text[1] for text in split.texts)
        assert len(first) < len(split)


def rows(*given):
    return [GivenPair(claim, f"id of {text}", "".join(list(text)), relevant) for claim, text, relevant in given]


def test_given_pairs_are_grouped_with_answers_first():
    pairs = rows(
        *[("c1", "no", False), ("c2", "yes", True), ("c1", "yes", True), ("c2", "no", False), ("c9", "no", False)],
        *[("c2", "no", False), ("c1", "yes", False), ("c3", "only yes", True)],
    )
    split = given_pairs(iter(pairs), CLAIMS)  # a text that occurs twice counts once, and as an answer
    assert split.groups == ("c2", "c2", "c1", "c1")
    assert split.labels == (1.0, 0.0, 1.0, 0.0)
    assert split.texts[0] == ("the second claim", "yes")
    assert split.texts[0][1] is split.texts[2][1]


def test_given_pairs_have_at_most_so_many_others_drawn_for_each_claim():
    pairs = rows(
        *[("c1", f"text {number}", number < 2) for number in range(30)], ("c2", "yes", True), ("c2", "no", False)
    )
    split = given_pairs(pairs, CLAIMS, negatives=5, seed=3)
    assert of(split, "c1")[1.0] == ["text 0", "text 1"]
    assert len(set(of(split, "c1")[0.0])) == 5
    alone = given_pairs(pairs[:30], {"c1": CLAIMS["c1"]}, negatives=5, seed=3)
    assert of(alone, "c1") == of(split, "c1")
    assert of(given_pairs(pairs, CLAIMS, negatives=5, seed=4), "c1")[0.0] != of(split, "c1")[0.0]


def test_no_pairs_and_unknown_claims_and_documents_and_a_negative_seed_are_refused():
    assert "no pairs to train on" in refusal(training, qrels={})
    assert "no pairs to train on" in refusal(given_pairs, [], CLAIMS)
    assert "no pairs: 1 claims" in refusal(candidate_pairs, CLAIMS, {"c1": {}}, QRELS, text_of)
    assert "judgements name the claim 'c2' (2 in all), which has no text" in refusal(training, {"c1": "x"})
    assert "candidates name the claim 'c2' (3 in all)" in refusal(candidate_pairs, {}, RUN, QRELS, text_of)
    assert "the document 'd99' is not in the corpus" in refusal(training, qrels={"c1": {"d99": 1}})
    assert "seed: expected 0 or more, got -1" in refusal(training, seed=-1)


# Sentences that one splitter or another breaks; a bar stands between two.
SENTENCES = {
    "probability": "It fell by 1.5 kg (p < 0.05). | Controls did not (P=.03). | 12 died.",
    "latin": "Some drugs, e.g. Aspirin and i.e. Zinc, work. | Others do not.",
    "authors": "Smith et al. Found it (Lee et al. 2004). | J. R. Smith did not.",
    "no abbreviation before a question mark": "Was it vitamin C? | It was.",
    "country": "It is used in the U.S. Army only. | It works.",
    "quotation": 'He said "it works." | (It did.) | [Yes.] | "No," they said.',
    "greek": "Nothing changed. | α-Synuclein rose. | Σ was 1.",
    "lower case continues": "The mean was approx. ten. then it fell. | Last.",
}


def test_sentences_of_abstracts():
    for case, text in SENTENCES.items():
        assert split_sentences(text.replace(" | ", " ")) == text.split(" | "), case


@settings(deadline=None)
@given(st.text(alphabet='aB1.!? ()"\n', max_size=60))
def test_no_character_of_a_text_is_lost(text):
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


@settings(deadline=None)
@given(st.integers(0, 9), st.integers(0, 12), st.integers(0, 9))
def test_passages_are_runs_of_sentences_and_never_the_whole(length, count, seed):
    text = " ".join(f"Sentence number {number} is here." for number in range(length))
    passages = draw_passages(text, count, np.random.default_rng(seed))
    size = min(3, length - 1)
    assert len(passages) == len(set(passages)) == min(count, length - size + 1 if size > 0 else 0)
    assert all(part in text and part != text and len(split_sentences(part)) == size for part in passages)
    assert [text.index(part) for part in passages] == sorted(text.index(part) for part in passages)
