"""The options of IAT: what is taken, and what is refused in one sentence."""

import pytest

from headwise.errors import InputError
from headwise.heads.iat import IAT, build_iat


def test_the_defaults_are_the_documented_ones():
    assert build_iat({}).as_dict() == {
        "start": 0.9,
        "heads": 0.3,
        "shared": True,
        "others": True,
        "protect": "qkv",
        "mode": "skip",
        "order": "descending",
        "granularity": "sample",
        "normalise": "none",
        "examples": 10_000,
        "split": "train",
        "keep_per_layer": 0,
        "control": True,
    }


def test_options_come_back_as_they_were_given():
    given = IAT(start=0.5, heads=0.2, shared=False, protect="qkvo", mode="grad_mask", order="random", keep_per_layer=2)
    assert build_iat(given.as_dict()) == given
    assert build_iat(given) is given


REFUSED = [
    ({"heads": 0}, r"iat\.heads is 0: expected a number above 0 and below 1"),
    ({"heads": 1}, r"iat\.heads is 1: "),
    ({"heads": True}, r"iat\.heads is True"),
    ({"heads": float("nan")}, r"iat\.heads is nan"),
    ({"start": 1.0}, r"iat\.start is 1\.0: expected a number above 0 and below 1"),
    ({"start": "0.9"}, r"iat\.start is '0\.9'"),
    ({"shared": 1}, r"iat\.shared is 1: expected true or false"),
    ({"others": "no"}, r"iat\.others is 'no'"),
    ({"control": None}, r"iat\.control is None"),
    ({"protect": "qkvx"}, r"iat\.protect is 'qkvx': did you mean 'qkv'\? known: qkv, qkvo"),
    ({"mode": "mask"}, r"iat\.mode is 'mask': .*grad_mask, skip"),
    ({"order": ["random"]}, r"iat\.order is \['random'\]: .*known: ascending, descending, random"),
    ({"granularity": "word"}, r"iat\.granularity is 'word'"),
    ({"normalise": True}, r"iat\.normalise is True"),
    ({"split": "test"}, r"iat\.split is 'test'"),
    ({"examples": 0}, r"iat\.examples is 0: expected a whole number of 1 or more"),
    ({"examples": 10.0}, r"iat\.examples is 10\.0"),
    ({"keep_per_layer": -1}, r"iat\.keep_per_layer is -1: expected a whole number of 0 or more"),
    ({"share": 0.3}, r"iat has no option 'share': did you mean 'shared'\?"),
    ([0.3], r"iat is \[0\.3\]: expected options with values"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_cannot_work_is_refused(options, message):
    with pytest.raises(InputError, match=message) as refused:
        build_iat(options)
    assert "\n" not in str(refused.value)
