"""Words: what is cut, what is kept whole, and that nothing is lost."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.patterns.align import plain, words, words_of

# Words that already stand apart, as in the many data sets whose texts are split.
APART = [
    "Patient was discharged .",
    "BP 120 / 80 , temp 98.6 F ; HR 72 .",
    "5mg of x ( 2.5mg b.i.d. )",
    "s / p x-ray , follow-up in 2 - 3 weeks",
    "an 18-year-old with COVID-19 and well-being and one - - two",
    "1,000,000.50 dollars , 12 , and 3 .",
    "the patient 's wife do n't CA N'T we 'll I 'M O'Brien 's o'clock n’t ’s",
    "the dogs ' bowls ' quoted '",
    "The U.S. economy , e.g. at 5 a.m. and U.S policy .",
    "_ _ _ [ * * 2019 - 5 - 3 * * ] 37 ° C",
    "café cafe\u0301 naïve Ärzte",
    "中 文 字 and 中 .",
    "हिन्दी में می\u200cخواهم",
    "\U0001f600 \U0001f600 \u0301 a",
]


def test_what_stands_apart_is_not_cut_again():
    for text in APART:
        assert [text[start:end] for start, end in words(text)] == text.split()


def test_words_that_touch():
    for text, expected in [
        ("Temp 98.6F, BP:120/80.", ["Temp", "98.6F", ",", "BP", ":", "120", "/", "80", "."]),
        ("the patient's wife doesn't", ["the", "patient", "'s", "wife", "does", "n't"]),
        ("isn’t it the dogs' bowl?", ["is", "n’t", "it", "the", "dogs", "'", "bowl", "?"]),
        ("word--word (x-ray)", ["word", "-", "-", "word", "(", "x-ray", ")"]),
        ("2-3 weeks, 2019-05-03", ["2", "-", "3", "weeks", ",", "2019", "-", "05", "-", "03"]),
        ("costs 1,000.50.", ["costs", "1,000.50", "."]),
        ("in the U.S.\nNext", ["in", "the", "U.S.", "Next"]),
        ("So do I.He", ["So", "do", "I", ".", "He"]),
        ("中文字abc", ["中", "文", "字", "abc"]),
        ("snake_case", ["snake", "_", "case"]),
        ("'such' 'S.' x's-y", ["'", "such", "'", "'S", ".", "'", "x's-y"]),
        ("5'10 tall", ["5", "'", "10", "tall"]),
        ("हिन्दी-में \U0001f600\U0001f600", ["हिन्दी-में", "\U0001f600", "\U0001f600"]),
    ]:
        assert [text[start:end] for start, end in words(text)] == expected
    assert words("\n\t\u00a0\u3000 ") == words("") == []


TEXTS = st.one_of(st.text(), st.text(alphabet="ab1.,-'’ n_t中\u0301"))


@settings(deadline=None)
@given(TEXTS)
def test_words_stand_in_order_and_leave_out_only_white_space(text):
    covered, before = [], 0
    for start, end in words(text):
        assert before <= start < end
        covered.append(text[before:start])
        assert not any(letter.isspace() for letter in text[start:end])
        before = end
    assert not "".join([*covered, text[before:]]).strip()


def test_words_of_an_example_say_which_text_they_are_in():
    found, spans = words_of(("A b.", "", " c"))
    assert found == ["A", "b", ".", "c"]
    assert spans.tolist() == [[0, 0, 1], [0, 2, 3], [0, 3, 4], [2, 1, 2]]
    assert spans.dtype == "int32"
    assert words_of(("", " "))[1].shape == (0, 3)
    assert plain("O’CLOCK") == plain("o'clock") == "o'clock"
