"""Topics and stars of news, reviews, questions and encyclopaedia entries, and pairs of news.

Most are the data sets of Zhang, Zhao and LeCun (2015), which come as CSV without a header and count classes from 1.
They have no validation file: `data.validation_fraction` takes one from train.
"""

from __future__ import annotations

from headwise.data.layouts import Layout, Places
from headwise.data.task import FileTask, named, numbered, places, row

SOURCE = "https://arxiv.org/abs/1509.01626"
ACCURACY = ("accuracy",)
TITLED = (
    Layout((("title", "text"),), "class", columns=("class", "title", "text")),
    named(("Title", "Description"), label="Class Index"),
    named(("title", "description"), label="label"),
    named(("title", "content"), label="label"),
    named("text", label="label"),
)
REVIEW = (Layout(("text",), "class", columns=("class", "text")), named("text", label="label"))
QUESTION = ("question_title", "question_content", "best_answer")
NEWS_PAIR = named(("news1-sentence1", "news1-sentence2"), ("news2-sentence1", "news2-sentence2"), label="label")


def _below(*folders: str) -> Places:
    names = {"train": "train.csv", "validation": "validation.csv dev.csv", "test": "test.csv"}
    return places((*folders, ""), names)


TOPICS: tuple[FileTask, ...] = (
    row(
        "ag",
        "Which of four topics has the news? The text is title - description.",
        SOURCE,
        places=_below("ag_news_csv", "ag_news", "ag"),
        layouts=TITLED,
        **numbered("World", "Sports", "Business", "Sci/Tech", start=1),
        metrics=ACCURACY,
    ),
    row(
        "ag-pair",
        "Have the two news the same topic? Made from AG News by `headwise data ag-pair`.",
        "https://aclanthology.org/2023.emnlp-main.1026",
        places=places(
            ("ag-pair", "ag_pair", "AGPair_data", ""),
            {"train": "train.tsv", "validation": "validation.tsv dev.tsv", "test": "test.tsv"},
        ),
        layouts=(NEWS_PAIR,),
        known_labels=("same", "different"),
        metrics=ACCURACY,
    ),
    row(
        "dbpedia",
        "Of which of fourteen kinds is the thing described?",
        SOURCE,
        places=_below("dbpedia_csv", "dbpedia"),
        layouts=TITLED,
        **numbered(
            "Company",
            "EducationalInstitution",
            "Artist",
            "Athlete",
            "OfficeHolder",
            "MeanOfTransportation",
            "Building",
            "NaturalPlace",
            "Village",
            "Animal",
            "Plant",
            "Album",
            "Film",
            "WrittenWork",
            start=1,
        ),
        metrics=ACCURACY,
    ),
    row(
        "yahoo",
        "Which of ten topics has the question? The text is title - question - best answer.",
        SOURCE,
        places=_below("yahoo_answers_csv", "yahoo_answers", "yahoo"),
        layouts=(Layout((QUESTION,), "topic", columns=("topic", *QUESTION)),),
        **numbered(
            "Society & Culture",
            "Science & Mathematics",
            "Health",
            "Education & Reference",
            "Computers & Internet",
            "Sports",
            "Business & Finance",
            "Entertainment & Music",
            "Family & Relationships",
            "Politics & Government",
            start=1,
        ),
        metrics=ACCURACY,
    ),
    row(
        "sogou",
        "Which topic has the Chinese news? The classes are found in train: five as published, six in other selections.",
        SOURCE,
        places=_below("sogou_news_csv", "sogou_news", "sogou"),
        layouts=TITLED,
        metrics=ACCURACY,
    ),
    row(
        "yelp-polarity",
        "Is the review positive or negative?",
        SOURCE,
        places=_below("yelp_review_polarity_csv", "yelp_polarity", "yelp_p"),
        layouts=REVIEW,
        **numbered("negative", "positive", start=1),
        metrics=ACCURACY,
    ),
    row(
        "yelp-full",
        "How many stars does the review give, from 1 to 5?",
        SOURCE,
        places=_below("yelp_review_full_csv", "yelp_full", "yelp_f"),
        layouts=REVIEW,
        known_labels=("1", "2", "3", "4", "5"),
        aliases={"1 star": "1", "2 star": "2", "3 stars": "3", "4 stars": "4", "5 stars": "5"},
        metrics=ACCURACY,
    ),
    row(
        "imdb",
        "Is the review of the film positive or negative? As one file per split, not as the folders of aclImdb.",
        "https://ai.stanford.edu/~amaas/data/sentiment",
        places=places(
            ("imdb", "IMDB", "aclImdb", ""),
            {
                split: " ".join(
                    f"{name}.{kind}" for name in names.split() for kind in ("csv", "tsv", "jsonl", "parquet")
                )
                for split, names in {"train": "train", "validation": "validation dev", "test": "test"}.items()
            },
        ),
        layouts=(named("review", label="sentiment"), named("text", label="label")),
        known_labels=("negative", "positive"),
        aliases={"0": "negative", "1": "positive", "neg": "negative", "pos": "positive"},
        metrics=ACCURACY,
    ),
)
