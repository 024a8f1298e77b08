"""What a claim is about: its words without grammar, numbers and the direction of the effect."""

from __future__ import annotations

import re

from headwise.tasks.retrieval.words import plain_words

# In IL-10 the number is part of a name: IL10.
NAME_HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u2010\u2011](?=\d)")
GRAMMAR = (
    "a about after against all also among an and any are as at be been before being between both but by can could "
    "did do does during each either for from had has have having if in into is it its may might of on only or other "
    "over per same shall should so some such than that the their them then there these they this those through to "
    "under up upon very via was were what when where whether which while who will with within would "
    "cannot fail fails incapable lack lacking lacks neither never no none nor not unable without"
)
# Two claims that differ only in these say that the same thing goes up, goes down or does not move.
DEGREES = (
    "better effect effective effectively fewer greater high higher highest highly ineffective led less low lower "
    "lowest more most much negative negatively poorer positive positively significantly stronger weaker worse "
    "associated association correlated correlation correlates linked related unrelated thousand million"
)
VERBS = (
    "activate affect attenuate block cause decline decrease diminish downregulate elevate enhance exacerbate "
    "facilitate impair impede improve increase induce inhibit lead lower prevent promote protect raise reduce "
    "repress rise stimulate suppress upregulate worsen"
)


def _forms(verb: str) -> set[str]:
    stem = verb.removesuffix("e")
    return {verb, f"{verb}s", *(stem + ending for ending in ("es", "ed", "ing"))}


IGNORED = frozenset([*GRAMMAR.split(), *DEGREES.split(), *(form for verb in VERBS.split() for form in _forms(verb))])


def claim_words(text: str) -> frozenset[str]:
    """The words that say what a text is about: never empty, and equal for "X raises Y" and "X lowers Y by 5%".

    These are the words of the search, without plural endings, numbers, grammar, negations and words for the direction
    of an effect. A text of nothing else keeps all of its words, and one without words stands for itself. The lists are
    English; in another language every word counts.
    """
    words = plain_words(NAME_HYPHEN.sub("", text))
    about = {_singular(word) for word in words if word not in IGNORED and not word.isdecimal()}
    return frozenset(about or words or [text.strip()])


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
