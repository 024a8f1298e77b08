"""AG-Pair: which news are paired, what is written, and what is refused."""

import random
from collections import Counter
from itertools import combinations, groupby, product

import pytest
from data.files import json_lines, table, write

from headwise.data import build_task
from headwise.data.ag_pair import News, Pair, count_pairs, make_pairs, pairs_table, read_news, write_pairs
from headwise.errors import InputError


def made_up(*sizes):
    news = [
        News(str(topic), f"title {topic}.{n}", f"text {n}") for topic, size in enumerate(sizes, 1) for n in range(size)
    ]
    random.Random(5).shuffle(news)
    return news


def topics(news, pair):
    return news[pair.first].topic, news[pair.second].topic


def check(news, rounds=2, **options):
    """Pairs, with every promise counted one by one, without the code under test."""
    pairs = make_pairs(news, rounds=rounds, **options)
    assert Counter(index for pair in pairs for index in pair) == dict.fromkeys(range(len(news)), rounds)
    texts = [(each.title, each.description) for each in news]
    keys = [frozenset((texts[pair.first], texts[pair.second])) for pair in pairs]
    assert all(len(key) == 2 for key in keys)  # two different texts
    assert len(set(keys)) == len(keys)  # no pair twice
    sizes = set(Counter(each.topic for each in news).values())
    if len(sizes) == 1 and not sizes.pop() % 4:
        assert 2 * sum(first == second for first, second in (topics(news, pair) for pair in pairs)) == len(pairs)
    return pairs


def test_the_numbers_of_the_official_test_set():
    news = made_up(1900, 1900, 1900, 1900)
    pairs = check(news)
    counts = count_pairs(news, pairs)
    assert (counts["rows"], counts["same"], counts["different"]) == (7600, 3800, 3800)
    assert counts["occurrences"] == {2: 7600}
    blocks = Counter(tuple(sorted(topics(news, pair))) for pair in pairs)
    for topic in "1234":
        assert blocks[topic, topic] == 2 * 475
    for block in combinations("1234", 2):
        assert 2 * 316 <= blocks[block] <= 2 * (316 + 2)  # two leftovers of each topic in every round


SIZES = [(8, 8), (12, 9, 7), (40, 5, 6), (100, 4, 4, 4, 4), (4, 5), (7, 7, 7), (61, 60, 60, 60)]


def test_topics_of_any_number_and_size():
    for sizes, rounds in product(SIZES, (1, 2, 3, 4)):
        news = made_up(*sizes)
        if len(news) * rounds % 2:
            with pytest.raises(InputError, match="odd number.*even number of rounds"):
                make_pairs(news, rounds=rounds)
        else:
            check(news, rounds, seed=rounds)


def test_about_half_are_the_same_unless_one_topic_is_larger_than_all_others():
    assert count_pairs(news := made_up(50, 60, 70, 80), make_pairs(news))["same"] == 2 * (24 + 30 + 34 + 40) // 2
    counts = count_pairs(news := made_up(100, 4, 4), make_pairs(news))
    assert (counts["same"], counts["different"]) == (100, 2 * 4)  # two of each small topic, in each round


def test_no_pair_comes_again():
    """Almost every round repeats a pair of an earlier one, if nobody looks: six pairs within a topic of four."""
    for seed in range(10):
        check(made_up(4, 4), 3, seed=seed)
    check(made_up(80, 80), 12)
    with pytest.raises(InputError, match="round 7: found no pairs that are new.*fewer rounds"):
        make_pairs(made_up(4, 4), rounds=20, seed=2)


def test_news_that_read_the_same_never_meet_and_do_not_make_the_same_pair_again():
    for seed in range(10):
        check([News(topic, f"title {n // 2}", "text") for topic in "12" for n in range(40)], seed=seed)
    for seed in range(20):
        check([News(topic, f"title {topic}.{n // 2}", "text") for topic in "12" for n in range(12)], seed=seed)


def test_the_seed_decides_all_and_the_slot_order_changes_only_the_order():
    news = made_up(20, 20, 20)
    assert make_pairs(news, seed=1) == make_pairs(news, seed=1) != make_pairs(news, seed=2)
    reference = make_pairs(news, seed=1, slot_order="reference")
    assert {frozenset(pair) for pair in reference} == {frozenset(pair) for pair in make_pairs(news, seed=1)}
    same = [len(set(topics(news, pair))) == 1 for pair in make_pairs(made_up(20, 20, 20))]
    assert len(list(groupby(same))) > 10  # four in the authors' order


def test_the_order_of_the_authors():
    news = made_up(20, 20, 20, 20)
    found = [topics(news, pair) for pair in make_pairs(news, slot_order="reference")]
    one_round = [(t, t, 5) for t in "1234"] + [(a, b, 3) for a, b in combinations("1234", 2)]
    assert [(*key, len(list(group))) for key, group in groupby(found)][:10] == one_round
    assert sorted("".join(a + b for a, b in found[38:40])) == list("1234")  # leftovers: one of each topic
    assert [(*key, len(list(group))) for key, group in groupby(found[40:])][:10] == one_round
    assert all(a <= b for a, b in found)
    news = [News(topic, f"{topic} {n}", "x") for topic in ("10", "9") for n in range(4)]  # in the order of numbers
    assert topics(news, make_pairs(news, slot_order="reference")[-1]) == ("9", "10")


def test_the_topic_of_one_slot_says_nothing_unless_the_order_is_the_authors():
    news = made_up(400, 400, 400, 400)
    ours, theirs = (count_pairs(news, make_pairs(news, slot_order=order)) for order in ("random", "reference"))
    # Topic 1 is always first: 2/3 of its pairs in slot 1 are different, and so on; as in the authors' file.
    assert theirs["shortcut"] == pytest.approx(2 / 3, abs=0.003)
    assert theirs["slots"]["different"][0]["4"] == theirs["slots"]["different"][1]["1"] == 0
    assert ours["shortcut"] < 0.53


def test_counts_by_hand():
    news = [News(topic, title, "x") for topic, title in zip("11122", "abcde", strict=True)]
    counts = count_pairs(news, [Pair(0, 1), Pair(2, 3), Pair(1, 3), Pair(2, 4)])
    assert (counts["same"], counts["different"], counts["chance"]) == (1, 3, 0.75)
    # Slot 1 has topic 1 each time: 3 right by saying different. Slot 2: topic 1 is same, topic 2 different: all right.
    assert counts["shortcut"] == 1.0
    assert counts["slots"]["same"] == ({"1": 1, "2": 0}, {"1": 1, "2": 0})
    assert counts["slots"]["different"] == ({"1": 3, "2": 0}, {"1": 0, "2": 3})
    assert counts["occurrences"] == {1: 2, 2: 3}
    assert counts["topics"] == {"1": 3, "2": 2}


def test_what_cannot_be_paired_is_refused():
    for news, options, words in [
        (made_up(8), {}, "at least two topics, got only the topic '1'"),
        ([], {}, "at least two topics, got no news"),
        (made_up(8, 3, 9), {}, "topic '2' has 3 news: expected at least 4"),
        (made_up(8, 8), {"rounds": 0}, "rounds: expected at least 1"),
        (made_up(8, 8), {"slot_order": "refrence"}, "did you mean 'reference'"),
    ]:
        with pytest.raises(InputError, match=words):
            make_pairs(news, **options)


# -- files -------------------------------------------------------------------------------------------------------------

FILES = {
    "as-published.csv": '"1","a ""q""","b, c"\n"2","d\\e","f"\n',
    "headed.csv": 'Class Index,Title,Description\n1,"a ""q""","b, c"\n2,d\\e,f\n',
    "tabs.tsv": table(("description", "class", "title"), ("b, c", 1, 'a "q"'), ("f", 2, "d\\e")),
    "objects.jsonl": json_lines(
        {"label": 1, "title": 'a "q"', "description": "b, c"}, {"label": 2, "title": "d\\e", "description": "f"}
    ),
}


def test_files_of_news(tmp_path):
    for name, content in FILES.items():
        assert read_news(write(tmp_path / name, content)) == (News("1", 'a "q"', "b, c"), News("2", "d\\e", "f")), name
    for content in ("a b,3\nc,0\n", "text,label\na b,3\nc,0\n"):
        assert read_news(write(tmp_path / "sample.csv", content)) == (News("3", "a b"), News("0", "c"))
    # Tabs and line ends become blanks, and backslashes stay.
    path = write(tmp_path / "a.csv", '"1"," a\tb","c\r\nd\\ne "\n')
    assert read_news(path) == (News("1", " a b", "c d\\ne "),)


BAD_FILES = [
    ("a.csv", "1,2,3,4\n", "expected news as class, title and description.*got 4 columns"),
    ("a.jsonl", '{"title": "a", "description": "b"}\n', "expected news as class"),
    ("a.csv", "1,a,b\n2,c\n", "line 2: expected 3 fields, got 2"),
    ("a.csv", '1,a,b\n2," ",d\n', "line 2: expected text in 'title', got ' '"),
    ("a.csv", ",a,b\n", "line 1: expected a topic in 'class'"),
    ("a.docx", "x", "are read from .csv, .tsv, .jsonl and .parquet files"),
]


def test_bad_files_of_news(tmp_path):
    for name, content, words in BAD_FILES:
        with pytest.raises(InputError, match=words) as caught:
            read_news(write(tmp_path / name, content))
        assert str(caught.value).endswith(".")


def test_the_task_reads_what_is_written(tmp_path):
    news = [News("1", "a", ' "b" \\'), News("1", "c", "d"), News("2", "e")]
    assert pairs_table(news, [Pair(1, 0), Pair(0, 2)]) == (
        "label\tnews1-sentence1\tnews1-sentence2\tnews2-sentence1\tnews2-sentence2\n"
        'same\tc\td\ta\t "b" \\\n'
        'different\ta\t "b" \\\te\t\n'
    )
    rows = (f'"{t}","title {t}.{n}","text, ""{n}"""\n' for t in "1234" for n in range(8))
    source = write(tmp_path / "news.csv", "".join(rows))
    (tmp_path / "ag-pair").mkdir()
    answer = write_pairs(source, tmp_path / "ag-pair/train.tsv")
    split = build_task("ag-pair", {}).read("train", tmp_path)
    assert Counter(split.labels) == {0: answer["same"], 1: answer["different"]} == {0: 16, 1: 16}
    for (one, other), label in zip(split.texts, split.labels, strict=True):
        assert (one[6] == other[6]) is (label == 0)
    assert Counter(text for pair in split.texts for text in pair) == {
        f'title {t}.{n} - text, "{n}"': 2 for t in "1234" for n in range(8)
    }
