"""The generated task `clinic`: what it promises, checked on what it makes.

The label is derived a second time here, from the facts and the claim that an example carries (`judged`), and what the
frames say is read a second time too (`SAYS`): between them, text, facts and label have to agree.
"""

import json
import re
import subprocess
import sys
import time
from collections import Counter
from functools import cache
from itertools import chain

import pytest
from scipy.sparse import hstack
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from headwise.data import build_task
from headwise.data.clinic import ClinicTask, clinic_task
from headwise.data.clinic.entities import Dice
from headwise.data.clinic.frames import OPENERS, Filling
from headwise.data.clinic.frames import frames as parsed
from headwise.data.clinic.generate import KINDS, PHENOMENA
from headwise.data.clinic.lexicon import COUNTS, DOSES, LEXICONS, MOMENTS, ONSETS
from headwise.errors import InputError

SPLITS = ("train", "validation", "test")
SEEDS = (0, 1)
ENTAILMENT, NEUTRAL, CONTRADICTION = range(3)


@cache
def examples(split, seed=0):
    return clinic_task({"seed": seed}).examples(split)


everywhere = pytest.mark.parametrize(("split", "seed"), [(split, seed) for split in SPLITS for seed in SEEDS])


# --- the task as the library sees it ---


def test_the_card():
    task = build_task("clinic", {})
    assert isinstance(task, ClinicTask)
    assert task.labels == ("entailment", "neutral", "contradiction")
    assert (task.name, task.kind, task.sentences, task.primary) == ("clinic", "classification", 2, "accuracy")
    assert task.primary in task.metrics
    assert task.splits == SPLITS
    card = task.describe()
    assert json.loads(json.dumps(card)) == card
    assert card["sizes"] == {"train": 3600, "validation": 600, "test": 1200}
    assert card["phenomena"] == list(PHENOMENA)


def test_a_split_has_texts_labels_and_spans():
    task = clinic_task({"sizes": {"test": 7}})
    split = task.read("test", network=False)
    assert split.texts == tuple((example.premise, example.hypothesis) for example in task.examples("test"))
    assert split.labels == tuple(example.label for example in task.examples("test"))
    assert split.spans == tuple(example.spans for example in task.examples("test"))
    assert len(split) == 7


@pytest.mark.parametrize("suffix", ["tsv", "jsonl"])
def test_own_files_have_the_columns_of_the_task(tmp_path, suffix):
    task = clinic_task({})
    rows = [(example.premise, example.hypothesis, task.labels[example.label]) for example in examples("test")[:9]]
    path = tmp_path / f"own.{suffix}"
    names = ("sentence1", "sentence2", "label")
    if suffix == "tsv":
        path.write_text("".join("\t".join(row) + "\n" for row in [names, *rows]), encoding="utf-8")
    else:
        path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    split = task.read_file(path, labelled=True)
    assert split.texts == tuple(row[:2] for row in rows)
    assert split.labels == tuple(example.label for example in examples("test")[:9])


WRONG = [
    ({"size": 3}, "unknown option 'size' of task clinic: did you mean 'sizes'? known: seed, sizes."),
    ({"seed": "a"}, "seed 'a' of task clinic: expected a whole number, such as 0."),
    ({"seed": True}, "seed True of task clinic: expected a whole number"),
    ({"sizes": 100}, "sizes 100 of task clinic: expected whole numbers by split, such as {'train': 3600"),
    ({"sizes": {"dev": 3}}, "sizes of task clinic name the unknown split 'dev': known: test, train, validation."),
    ({"sizes": {"train": 0}}, "size 0 of split 'train' of task clinic: expected a whole number from 1 up."),
    ({"sizes": {"test": 1.5}}, "size 1.5 of split 'test' of task clinic: expected a whole number from 1 up."),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_options_are_named(options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        clinic_task(options)


def test_an_unknown_split_is_named():
    with pytest.raises(InputError, match=r"no split 'tests': did you mean 'test'\? known: test, train, validation\."):
        clinic_task({}).read("tests")


def test_importing_it_is_cheap():
    code = "import sys, headwise.data.clinic; sys.exit(', '.join({'torch', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


# --- any size, seeded ---


@everywhere
def test_the_same_seed_makes_the_same_and_a_larger_size_continues(split, seed):
    small = clinic_task({"sizes": {split: 100}, "seed": seed}).examples(split)
    assert small == examples(split, seed)[:100]


def test_another_seed_makes_others():
    for split in SPLITS:
        pairs = [{(example.premise, example.hypothesis) for example in examples(split, seed)} for seed in SEEDS]
        assert len(pairs[0] & pairs[1]) < 0.05 * len(pairs[0])


def test_chance_does_not_depend_on_the_machine():
    dice = Dice("clinic test 0")
    assert [dice.whole(0, 99) for _ in range(6)] == [97, 74, 34, 14, 24, 28]
    assert dice.shuffled("abcdef") == ["d", "b", "c", "f", "e", "a"]


@pytest.mark.parametrize("size", [1, 2, 100, 1201])
def test_labels_are_balanced_at_every_size(size):
    counts = Counter(example.label for example in clinic_task({"sizes": {"train": size}}).examples("train"))
    assert counts.total() == size
    assert max(counts.values()) - min(counts[label] for label in range(3)) <= 1


@everywhere
def test_phenomena_have_their_shares_in_every_label(split, seed):
    counts = Counter((example.phenomenon, example.label) for example in examples(split, seed))
    assert {phenomenon for phenomenon, _ in counts} == set(PHENOMENA)
    chunks = len(examples(split, seed)) / (3 * sum(PHENOMENA.values()))
    for phenomenon, share in PHENOMENA.items():
        for label in range(3):
            assert abs(counts[phenomenon, label] - share * chunks) <= 2


def test_nothing_comes_twice():
    for seed in SEEDS:
        pairs = [(example.premise, example.hypothesis) for split in SPLITS for example in examples(split, seed)]
        assert len(set(pairs)) == len(pairs)
        assert all(premise != hypothesis for premise, hypothesis in pairs)


def test_five_thousand_take_less_than_two_seconds():
    start = time.process_time()
    assert len(clinic_task({"sizes": {"train": 5000}, "seed": 99}).examples("train")) == 5000
    assert time.process_time() - start < 2


def test_a_large_split_does_not_run_out_of_words():
    assert len(clinic_task({"sizes": {"validation": 10_000}}).examples("validation")) == 10_000


# --- splits have words and frames of their own ---


def words(text):
    return set(re.findall(r"[\w'-]+", text.lower()))


def open_words(split):
    lexicon = LEXICONS[split]
    lists = (lexicon.symptoms, lexicon.classes, *lexicon.classes.values(), lexicon.lesions, lexicon.sites)
    names = chain(*lists, lexicon.drugs, lexicon.measures, (name.split()[1] for name in lexicon.people))
    return words(" ".join(names))


def frames(split):
    return [frame for kind in KINDS for frame in (*kind.templates[split].premises, *kind.templates[split].claims)]


def plain(frame):
    """The frame's own words."""
    return words(re.sub(r"\{\w+\}|\[\w+:|[\]|*~]", " ", frame.text))


OTHERS = [(split, other) for split in SPLITS for other in SPLITS if split != other]


@pytest.mark.parametrize(("split", "other"), OTHERS)
def test_lexicons_share_no_word(split, other):
    assert open_words(split) & open_words(other) == set()
    for seed in SEEDS:
        for example in examples(split, seed):
            assert not (words(example.premise) | words(example.hypothesis)) & open_words(other)


def test_frames_and_closed_words_are_not_in_any_lexicon():
    closed = words(" ".join([*MOMENTS, *chain(*ONSETS), *DOSES, *COUNTS.values(), *chain(*OPENERS.values())]))
    for split in SPLITS:
        for other in SPLITS:
            assert closed.union(*map(plain, frames(other))) & open_words(split) == set()


def test_frames_differ_between_splits():
    texts = {split: {frame.text for frame in frames(split)} for split in SPLITS}
    for split, other in OTHERS:
        assert texts[split] & texts[other] == set()
        assert set(OPENERS[split]) & set(OPENERS[other]) == set()


def test_training_has_many_frames_and_all_are_used():
    for split, fewest in {"train": 6, "validation": 3, "test": 3}.items():
        # More than the usual sizes, so that the frames of rare kinds have their chance.
        used = {example.frames for example in clinic_task({"sizes": {split: 8000}}).examples(split)}
        for kind in KINDS:
            templates = kind.templates[split]
            assert len(templates.premises) >= fewest
            assert len(templates.claims) >= 2
            assert {frame.text for frame in templates.premises} <= {premise for premise, _ in used}
            assert {frame.text for frame in templates.claims} <= {claim for _, claim in used}


def test_other_splits_decide_with_words_that_training_knows():
    def cue_words(split):
        cues = (cue for frame in frames(split) for _, alternatives in frame.cues for cue in alternatives)
        return words(" ".join(cues).replace("*", " ").replace("~", " "))

    assert cue_words("validation") | cue_words("test") <= cue_words("train")


# --- what the frames say ---

HAS = "has, is present, definite, suffers from"
HAS_NOT = "does not have, is absent, no, is free of"
SAYS = {
    "negation": (
        f"{HAS}, reports, with, complains of",
        f"{HAS_NOT}, denies, without, neither, nor",
        "runs in the family, sister has, brother suffers from",
    ),
    "uncertainty": (
        f"{HAS}, was confirmed, confirmed, shows, is certain, was found",
        f"{HAS_NOT}, was ruled out, ruled out, does not show, was excluded, excluded, was not found",
        "cannot be excluded, possible, may show, may be, unclear whether, suspect, remains possible, "
        "is still being considered",
    ),
    "class": (
        f"{HAS}, lists, was diagnosed, is known, treated for, confirmed",
        f"{HAS_NOT}, rules out, was never found, free of, excluded",
        "",
    ),
    "side": ("left, the left", "right, the right", "one"),
    "place": ("*", "*", "is not recorded, is not said where"),
    "status": (
        "started, began, now takes, added, newly prescribed",
        "stopped, no longer takes, withdrawn, no longer prescribed",
        "discussed, under discussion, asked about",
    ),
    "change": (
        "raised, increased, more, up, higher",
        "lowered, reduced, less, down, lower",
        "left for review, under discussion",
    ),
    "dose": (
        "* mg, from ~ mg to * mg, to * mg from ~ mg",
        "* mg, from ~ mg to * mg, to * mg from ~ mg",
        "is not recorded",
    ),
    "onset": ("*", "*", "at an unknown time, cannot date"),
    "order": ("before, earlier, first", "after, later, then", ""),
    "reading": ("*, above *, more than *, over *", "*, below *, less than *, under *", "still pending, not yet back"),
    "count": ("*, more than *, over *", "*, fewer than *, under *", "not counted, nobody counted"),
    "trend": (
        "rose, up, increased, higher, rise",
        "fell, down, decreased, lower, fall",
        "not been repeated, not repeated",
    ),
    "people": ("higher, above", "lower, below", ""),
    "moment": ("higher, above, up, high", "lower, below, down, low", ""),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_cues_of_a_frame_say_what_its_numbers_mean(kind):
    says = [set(phrases.split(", ")) for phrases in SAYS[kind.name]]
    for split in SPLITS:
        for frame in (*kind.templates[split].premises, *kind.templates[split].claims):
            for pattern in frame.patterns:
                slots = "x" if frame in kind.templates[split].claims else "ab"
                numbers = dict(zip(slots, pattern, strict=False))
                silent = set(numbers)
                for owners, alternatives in frame.cues:
                    number = numbers[owners[0]]
                    cue = alternatives[0] if len(alternatives) == 1 else alternatives[number]
                    assert cue.lower() in says[number], frame.text
                    silent -= set(owners)
                # In a comparison one cue speaks of both sides.
                assert not silent or (kind.paired and silent < set(numbers)), frame.text


def test_articles_fit():
    for split in SPLITS:
        for example in examples(split):
            for text in (example.premise, example.hypothesis):
                assert not re.search(r"\b[Aa] [aeiou]|  | [.,;]|[{}\[\]|*~]", text), text
                assert re.fullmatch(r"[A-Z0-9].*\.", text)


# --- the label follows from the facts ---

LEFT_OPEN = {
    "in a relative",
    "possible",
    "one side",
    "not recorded",
    "discussed",
    "under review",
    "not known",
    "not repeated",
    "pending",
    "not counted",
}
EXCLUDE = [
    {"present", "absent"},
    {"left", "right"},
    {"started", "stopped"},
    {"raised", "lowered"},
    {"earlier", "later"},
    {"up", "down"},
    {"higher", "lower"},
]
NUMBERS = {word: number for number, word in COUNTS.items()}


def number(text):
    return NUMBERS[text] if text in NUMBERS else int(text)


def class_of(name, split):
    """The class of a diagnosis, or None."""
    return next((key for key, members in LEXICONS[split].classes.items() if name in members), None)


def entails(fact, claim, split):
    """Whether whoever believes the fact must believe the claim."""
    if fact.state in LEFT_OPEN:
        return False
    if claim.state.startswith(("above", "below")):
        side, bound = claim.state.split()
        same = (fact.about, fact.scope, fact.partner) == (claim.about, claim.scope, claim.partner)
        return same and (number(fact.state) > number(bound) if side == "above" else number(fact.state) < number(bound))
    if fact.about != claim.about and {fact.state, claim.state} <= {"present", "absent"}:
        upward = fact.state == "present" and class_of(fact.about, split) == claim.about
        downward = fact.state == "absent" and class_of(claim.about, split) == fact.about
        return fact.state == claim.state and (upward or downward)
    return fact == claim


def opposites(claim):
    """Claims that cannot be true together with this one; for a named place, time or dose, any other such name."""
    for pair in EXCLUDE:
        if claim.state in pair:
            yield next(iter(pair - {claim.state}))
    if claim.state.startswith(("above", "below")):
        side, bound = claim.state.split()
        yield f"{'below' if side == 'above' else 'above'} {bound}"


def judged(example, split):
    """The label, slowly: does some fact entail the claim, or something that the claim excludes?"""
    claim = example.claim
    named = [*LEXICONS[split].sites, *DOSES, *chain(*ONSETS)]
    others = [*opposites(claim), *(name for name in named if claim.state in named and name != claim.state)]
    negations = [type(claim)(claim.about, state, claim.scope, claim.partner) for state in others]
    if any(entails(fact, claim, split) for fact in example.facts):
        return ENTAILMENT
    if any(entails(fact, negation, split) for fact in example.facts for negation in negations):
        return CONTRADICTION
    return NEUTRAL


@everywhere
def test_the_label_follows_from_the_facts(split, seed):
    for example in examples(split, seed):
        assert judged(example, split) == example.label, example


@everywhere
def test_the_facts_stand_in_the_text(split, seed):
    valued = {"place", "dose", "onset", "reading", "count"}
    for example in examples(split, seed):
        for text, facts in ((example.premise, example.facts), (example.hypothesis, [example.claim])):
            for fact in facts:
                assert fact.about.lower() in text.lower()
                assert fact.partner.lower() in text.lower()
                if example.kind in valued and fact.state not in LEFT_OPEN:
                    assert words(fact.state) - {"above", "below"} <= words(text)


# --- the spans that decide ---


def deciding(example, sentence):
    text = (example.premise, example.hypothesis)[sentence]
    return [text[start:end] for place, start, end in example.spans if place == sentence]


@everywhere
def test_spans_are_whole_words_in_order(split, seed):
    for example in examples(split, seed):
        assert list(example.spans) == sorted(set(example.spans))
        for sentence, start, end in example.spans:
            text = (example.premise, example.hypothesis)[sentence]
            assert 0 <= start < end <= len(text)
            assert text[start:end] == text[start:end].strip()
            assert re.match(r"\b", text[start:]) is not None
            assert not text[start - 1 : start].isalnum()
            assert not text[end : end + 1].isalnum()


@everywhere
def test_spans_name_what_is_claimed_and_what_it_meets(split, seed):
    for example in examples(split, seed):
        premise, hypothesis = ([span.lower() for span in deciding(example, sentence)] for sentence in (0, 1))
        claim = example.claim
        assert claim.about.lower() in hypothesis
        met = [fact for fact in example.facts if meets(fact, claim, split)]
        if not met:
            assert example.label == NEUTRAL
            assert {fact.about.lower() for fact in example.facts} <= set(premise)
            assert all(span == claim.about.lower() or span == claim.scope for span in hypothesis)
            continue
        assert met[0].about.lower() in premise
        says = SAYS[example.kind]
        for spans, text in ((premise, example.premise), (hypothesis, example.hypothesis)):
            cues = [span for span in spans if any(fits(span, phrase) for phrase in ", ".join(says).split(", "))]
            assert cues, (text, spans)


def meets(fact, claim, split):
    same = (fact.about, fact.partner) == (claim.about, claim.partner)
    return same or class_of(fact.about, split) == claim.about or class_of(claim.about, split) == fact.about


def fits(span, phrase):
    return bool(phrase) and re.fullmatch(re.sub(r"\\\*|\\~|~", ".+", re.escape(phrase)), span) is not None


def test_a_frame_knows_where_its_words_went():
    (frame,) = parsed("01 12 :: The [a:left|right] {as} has a {a}; {b} [b:from ~ to *|from ~ to *|is open].")
    fillings = {"a": Filling("bruise", 1, site="knee"), "b": Filling("codeine", 0, own="20", other="10")}
    written = frame.write(fillings, "Bed 3. ")
    assert written.text == "Bed 3. The right knee has a bruise; codeine from 10 to 20."
    assert [written.text[start:end] for start, end in written.spans("a")] == ["right", "knee", "bruise"]
    assert [written.text[start:end] for start, end in written.spans("b")] == ["codeine", "from 10 to 20"]
    assert [written.text[start:end] for start, end in written.spans("b", cues=False)] == ["codeine"]
    assert frame.patterns == ((0, 1), (1, 2))


def test_spans_leave_out_what_is_beside_the_point():
    beside = 0
    for example in examples("test"):
        met = [fact for fact in example.facts if meets(fact, example.claim, "test")]
        others = [fact for fact in example.facts if fact not in met]
        if met and not example.claim.partner:
            assert not {fact.about.lower() for fact in others} & {span.lower() for span in deciding(example, 0)}
            beside += bool(others)
    assert beside > 400


# --- not to be solved by counting words ---


def bags(columns, train, test):
    """Unigram counts of each column, fitted on train."""
    parts = []
    for column in columns:
        vectorizer = CountVectorizer(token_pattern=r"\w+").fit([column(example) for example in train])
        parts.append([vectorizer.transform([column(example) for example in part]) for part in (train, test)])
    return [hstack(part).tocsr() for part in zip(*parts, strict=True)]


def accuracy(columns, train, test):
    known, new = bags(columns, train, test)
    model = LogisticRegression(max_iter=1000).fit(known, [example.label for example in train])
    return model.score(new, [example.label for example in test])


def premise(example):
    return example.premise


def hypothesis(example):
    return example.hypothesis


def both(example):
    return f"{example.premise} {example.hypothesis}"


def settings(seed):
    """Training against test, and against held-out notes of the same words and frames."""
    train = examples("train", seed)
    return [(train, examples("test", seed)), (train[:2880], train[2880:])]


@pytest.mark.parametrize("seed", SEEDS)
def test_words_of_the_hypothesis_alone_tell_nothing(seed):
    for train, test in settings(seed):
        assert accuracy([hypothesis], train, test) < 0.40


@pytest.mark.parametrize("seed", SEEDS)
def test_words_of_both_sentences_tell_little(seed):
    """The premise tells a part by design (see `generate`): measured 0.43 to 0.52 for both at seed 0."""
    for train, test in settings(seed):
        assert accuracy([premise], train, test) < 0.60
        assert max(accuracy([premise, hypothesis], train, test), accuracy([both], train, test)) < 0.60
