"""Frames about when something began. Onsets: the value is the time, 2 open. Order: 0 earlier, 1 later."""

from __future__ import annotations

from headwise.data.clinic.frames import templates

ONSET = {
    "train": templates(
        """
        01 10 :: {a} began [a:*] and {b} began [b:*].
        01 10 :: {a} has been there since it started [a:*]; {b} appeared [b:*].
        02 12 :: {a} appeared [a:*]; the patient [b:cannot date] the {b}.
        20 21 :: {a} began [a:at an unknown time], {b} [b:*].
        01 10 :: First noted: {a} [a:*], {b} [b:*].
        0 1 :: {a} started [a:*].
        01 10 :: In the history {a} begins [a:*] and {b} begins [b:*].
        """,
        """
        {x} began [x:*].
        {x} appeared [x:*].
        {x} was first noted [x:*].
        """,
    ),
    "validation": templates(
        """
        01 10 :: It was [a:*] that {a} began, and {b} started [b:*].
        02 12 :: {a} started [a:*], and {b} [b:at an unknown time].
        01 10 :: The onset of {a} was [a:*], that of {b} [b:*].
        """,
        """
        It was [x:*] that {x} began.
        The patient first noted {x} [x:*].
        """,
    ),
    "test": templates(
        """
        01 10 :: {a} was first noted [a:*], {b} appeared [b:*].
        20 21 :: The patient [a:cannot date] the {a}; {b} started [b:*].
        01 10 :: The patient says that {a} began [a:*] and that {b} began [b:*].
        0 1 :: The onset of {a} was [a:*].
        """,
        """
        The patient says that {x} began [x:*].
        The {x} started [x:*].
        """,
    ),
}

ORDER = {
    "train": templates(
        """
        01 10 :: {a} came [a:before|after] {b}.
        01 10 :: {a} appeared [a:earlier|later] than {b}.
        01 :: [a:First] came {a}, [b:then] {b}.
        01 :: {a} was there [a:first]; {b} came [b:later].
        10 :: {a} appeared only [a:after] {b} had begun.
        01 10 :: The onset of {a} was [a:before|after] that of {b}.
        10 :: {a} began [a:later], as {b} had come [b:first].
        """,
        """
        {x} came [x:before|after] {y}.
        {x} appeared [x:earlier|later] than {y}.
        The onset of {x} was [x:before|after] that of {y}.
        """,
    ),
    "validation": templates(
        """
        01 10 :: In this patient {a} began [a:before|after] {b} did.
        01 :: The patient had {a} [a:first] and {b} [b:later].
        10 :: The patient noted {a} [a:after] noting {b}.
        """,
        """
        The patient had {x} [x:before|after] {y}.
        In this patient {x} began [x:earlier|later] than {y}.
        """,
    ),
    "test": templates(
        """
        01 10 :: The patient noted {a} [a:before|after] {b}.
        01 :: It was {a} that came [a:first], and {b} came [b:later].
        10 :: As {b} had begun [b:earlier], {a} came [a:after] it.
        01 10 :: The patient says that {a} began [a:earlier|later] than {b}.
        """,
        """
        The patient says that {x} came [x:before|after] {y}.
        The patient noted {x} [x:earlier|later] than {y}.
        """,
    ),
}
