"""Frames about what is measured: against a bound, over time, and between two people or moments.

Readings and counts: the value is the number, 0 above the bound, 1 below, 2 open. Trends: 0 up, 1 down, 2 open.
Pairs: 0 higher, 1 lower; `{m}` is the measure.
"""

from __future__ import annotations

from headwise.data.clinic.frames import templates

READING = {
    "train": templates(
        """
        all 02 12 :: {a} was [a:*|*] and {b} was [b:*|*|still pending].
        all :: Results: {a} [a:*], {b} [b:*].
        0 1 :: The {a} was [a:*] today.
        20 21 :: {a} [a:not yet back]; {b} came back at [b:*].
        all :: The nurse charted {a} at [a:*] and {b} at [b:*].
        0 1 :: The latest {a} reads [a:*].
        02 12 :: The {a} is [a:*], while the {b} is [b:still pending].
        """,
        """
        The {x} was [x:above *|below *].
        The {x} is [x:more than *|less than *].
        {x} was [x:over *|under *].
        """,
    ),
    "validation": templates(
        """
        all :: Today the {a} reads [a:*] and the {b} reads [b:*].
        02 12 :: The chart shows {a} at [a:*]; the {b} is [b:not yet back].
        0 1 :: For {a} the result was [a:*].
        """,
        """
        Today the {x} was [x:above *|below *].
        The chart shows that {x} is [x:more than *|less than *].
        """,
    ),
    "test": templates(
        """
        all :: The latest results are {a} [a:*] and {b} [b:*].
        20 21 :: The {a} is [a:still pending], and the {b} was [b:*].
        0 1 :: The nurse charted the {a} at [a:*].
        all :: {a} came back at [a:*], {b} at [b:*].
        """,
        """
        The latest {x} was [x:above *|below *].
        The results show that {x} is [x:more than *|less than *].
        """,
    ),
}

COUNT = {
    "train": templates(
        """
        all :: The patient had [a:*] episodes of {a} and [b:*] of {b}.
        all 02 12 :: {a}: [a:*|*] times; {b}: [b:*|*|not counted].
        0 1 :: There were [a:*] bouts of {a} since admission.
        all :: The nurse saw {a} [a:*] times and {b} [b:*] times.
        20 21 :: [a:Nobody counted] the episodes of {a}; there were [b:*] of {b}.
        0 1 :: {a} came [a:*] times during the night.
        """,
        """
        There were [x:more than *|fewer than *] episodes of {x}.
        {x} came [x:more than *|fewer than *] times.
        The patient had [x:over *|under *] episodes of {x}.
        """,
    ),
    "validation": templates(
        """
        all :: During the night {a} came [a:*] times and {b} [b:*] times.
        02 12 :: The nurse saw [a:*] episodes of {a}; those of {b} were [b:not counted].
        0 1 :: The patient had {a} [a:*] times.
        """,
        """
        During the night there were [x:more than *|fewer than *] episodes of {x}.
        The patient had {x} [x:more than *|fewer than *] times.
        """,
    ),
    "test": templates(
        """
        all :: There were [a:*] episodes of {a} and [b:*] bouts of {b}.
        20 21 :: The bouts of {a} were [a:not counted]; {b} came [b:*] times.
        0 1 :: Since admission the patient had [a:*] episodes of {a}.
        """,
        """
        Since admission there were [x:more than *|fewer than *] episodes of {x}.
        The nurse saw {x} [x:more than *|fewer than *] times.
        """,
    ),
}

TREND = {
    "train": templates(
        """
        all :: {a} [a:rose|fell] overnight and {b} [b:rose|fell].
        01 10 :: While {a} went [a:up|down], {b} went [b:up|down].
        all 02 12 :: The {a} has [a:increased|decreased] and the {b} has [b:increased|decreased|not been repeated].
        0 1 :: The {a} is [a:higher|lower] than on admission.
        20 21 :: {a} was [a:not repeated]; the {b} [b:rose|fell].
        0 1 :: There is a [a:rise|fall] in {a}.
        all :: Compared with admission, {a} is [a:up|down] and {b} is [b:up|down].
        """,
        """
        The {x} is [x:higher|lower] than before.
        {x} has [x:increased|decreased].
        There was a [x:rise|fall] in {x}.
        {x} went [x:up|down].
        """,
    ),
    "validation": templates(
        """
        all :: Since admission the {a} [a:rose|fell] and the {b} [b:rose|fell].
        02 12 :: Overnight {a} went [a:up|down]; the {b} was [b:not repeated].
        01 10 :: We see a [a:rise|fall] in {a} but a [b:rise|fall] in {b}.
        """,
        """
        Since admission {x} has [x:increased|decreased].
        By now the {x} is [x:higher|lower] than before.
        """,
    ),
    "test": templates(
        """
        all :: The {a} went [a:up|down] and the {b} [b:rose|fell] overnight.
        20 21 :: The {a} was [a:not repeated], and {b} has [b:increased|decreased].
        01 10 :: Compared with before, {a} is [a:higher|lower], but {b} is [b:higher|lower].
        0 1 :: Since admission there is a [a:rise|fall] in {a}.
        """,
        """
        Now the {x} is [x:higher|lower] than before.
        Overnight {x} went [x:up|down].
        Since admission there was a [x:rise|fall] in {x}.
        """,
    ),
}

PEOPLE = {
    "train": templates(
        """
        01 10 :: {m} was [a:higher|lower] in {a} than in {b}.
        01 10 :: {a} had a [a:higher|lower] {m} than {b}.
        01 10 :: Of the two, {a} had the [a:higher|lower] {m}, {b} the [b:higher|lower].
        01 10 :: The {m} of {a} was [a:above|below] that of {b}.
        01 10 :: Compared with {b}, {a} had a [a:higher|lower] {m}.
        01 10 :: For {m}, {a} was the [a:higher|lower] one and {b} the [b:higher|lower] one.
        """,
        """
        The {m} was [x:higher|lower] in {x} than in {y}.
        {x} had a [x:higher|lower] {m} than {y}.
        The {m} of {x} was [x:above|below] that of {y}.
        """,
    ),
    "validation": templates(
        """
        01 10 :: The results of {a} show a [a:higher|lower] {m} than those of {b}.
        01 10 :: In {a} the {m} was [a:higher|lower], in {b} it was [b:higher|lower].
        01 10 :: Overnight the {m} of {a} was [a:above|below] that of {b}.
        """,
        """
        Overnight the {m} was [x:higher|lower] in {x} than in {y}.
        The results of {x} show a [x:higher|lower] {m} than those of {y}.
        """,
    ),
    "test": templates(
        """
        01 10 :: Overnight {a} had a [a:higher|lower] {m} than {b}.
        01 10 :: The {m} in {a} was the [a:higher|lower] one, in {b} the [b:higher|lower].
        01 10 :: In {a} the {m} was [a:above|below] that of {b}.
        """,
        """
        Overnight {x} had a [x:higher|lower] {m} than {y}.
        In {x} the {m} was [x:above|below] that of {y}.
        """,
    ),
}

MOMENT = {
    "train": templates(
        """
        01 10 :: {m} was [a:higher|lower] {a} than {b}.
        01 10 :: The {m} {a} was [a:above|below] that {b}.
        01 10 :: {m} {a} was [a:up|down] on that {b}.
        01 10 :: We read a [a:higher|lower] {m} {a} than {b}.
        01 10 :: The {m} was [a:high|low] {a} and [b:high|low] {b}.
        01 10 :: It was {a} that the {m} was [a:higher|lower], not {b}.
        """,
        """
        The {m} was [x:higher|lower] {x} than {y}.
        The {m} {x} was [x:above|below] that {y}.
        """,
    ),
    "validation": templates(
        """
        01 10 :: The patient had a [a:higher|lower] {m} {a} than {b}.
        01 10 :: The chart shows a [a:high|low] {m} {a} and a [b:high|low] one {b}.
        01 10 :: On the chart the {m} {a} is [a:above|below] that {b}.
        """,
        """
        The patient had a [x:higher|lower] {m} {x} than {y}.
        On the chart the {m} {x} is [x:above|below] that {y}.
        """,
    ),
    "test": templates(
        """
        01 10 :: The results show a [a:higher|lower] {m} {a} than {b}.
        01 10 :: In this patient the {m} {a} was [a:above|below] that {b}.
        01 10 :: The nurse charted a [a:high|low] {m} {a} and a [b:high|low] one {b}.
        """,
        """
        By the results the {m} {x} was [x:above|below] that {y}.
        In this patient the {m} was [x:higher|lower] {x} than {y}.
        """,
    ),
}
