"""Frames about drugs: 0 started, 1 stopped; 0 dose raised, 1 dose lowered; 2 open. Doses: the value is the dose."""

from __future__ import annotations

from headwise.data.clinic.frames import templates

STATUS = {
    "train": templates(
        """
        all :: {a} was [a:started|stopped] and {b} was [b:started|stopped] on the round.
        all 02 12 :: The team [a:began|stopped] {a} and [b:began|stopped|discussed] {b}.
        all :: The patient [a:now takes|no longer takes] {a}; {b} was [b:started|stopped] as well.
        all 20 21 :: Pharmacy note: {a} [a:added|withdrawn|under discussion], {b} [b:added|withdrawn].
        0 1 :: {a} is [a:newly prescribed|no longer prescribed].
        02 12 :: Whereas {a} was [a:started|stopped], {b} was only [b:discussed].
        20 21 :: We [a:asked about] {a} and [b:began|stopped] {b}.
        01 10 :: {a} was [a:added|withdrawn] after {b} had been [b:started|stopped].
        """,
        """
        {x} was [x:started|stopped].
        The patient [x:now takes|no longer takes] {x}.
        {x} is [x:newly prescribed|no longer prescribed].
        The team [x:began|stopped] {x}.
        """,
    ),
    "validation": templates(
        """
        all :: By the end of the round the team had [a:started|stopped] {a} and [b:started|stopped] {b}.
        02 12 :: The patient [a:now takes|no longer takes] {a}, and {b} was [b:discussed].
        01 10 :: The doctor [a:began|stopped] {a} but {b} is [b:newly prescribed|no longer prescribed].
        """,
        """
        On this ward {x} was [x:started|stopped].
        As of today the patient [x:now takes|no longer takes] {x}.
        """,
    ),
    "test": templates(
        """
        all :: On the round we [a:began|stopped] {a}, and {b} was [b:added|withdrawn].
        20 21 :: The team [a:discussed] {a}; {b} is [b:newly prescribed|no longer prescribed].
        all :: From the pharmacy: {a} was [a:started|stopped]; the patient [b:now takes|no longer takes] {b}.
        02 12 :: The patient [a:now takes|no longer takes] {a} and [b:asked about] {b}.
        """,
        """
        For this patient {x} was [x:started|stopped].
        Since the round the patient [x:now takes|no longer takes] {x}.
        On the round the team [x:began|stopped] {x}.
        """,
    ),
}

CHANGE = {
    "train": templates(
        """
        all :: The dose of {a} was [a:raised|lowered] and that of {b} was [b:raised|lowered].
        all 02 12 :: {a} was [a:increased|reduced], {b} was [b:increased|reduced|left for review].
        all :: The team [a:raised|lowered] {a} and [b:raised|lowered] {b}.
        0 1 :: The patient now takes [a:more|less] {a} than before.
        20 21 :: Dose of {a} [a:under discussion]; dose of {b} [b:increased|reduced].
        01 10 :: While {a} went [a:up|down], {b} went [b:up|down].
        0 1 :: We [a:increased|reduced] {a} on the round.
        """,
        """
        The dose of {x} was [x:raised|lowered].
        The patient takes [x:more|less] {x} than before.
        {x} was [x:increased|reduced].
        The dose of {x} is [x:higher|lower] than before.
        """,
    ),
    "validation": templates(
        """
        all :: We [a:raised|lowered] the dose of {a} and [b:raised|lowered] the dose of {b}.
        02 12 :: The dose of {a} went [a:up|down]; for {b} it is [b:under discussion].
        01 10 :: From now on the patient takes [a:more|less] {a} but [b:more|less] {b}.
        """,
        """
        On this ward the dose of {x} was [x:raised|lowered].
        On the chart {x} was [x:increased|reduced].
        """,
    ),
    "test": templates(
        """
        all :: On the round the dose of {a} went [a:up|down] and {b} was [b:increased|reduced].
        20 21 :: {a} was [a:left for review], while the dose of {b} was [b:raised|lowered].
        all :: The patient takes [a:more|less] {a} and [b:more|less] {b} now.
        0 1 :: The team [a:increased|reduced] the dose of {a}.
        """,
        """
        For this patient the dose of {x} was [x:raised|lowered].
        Now the patient takes [x:more|less] {x} than before.
        After the round the dose of {x} is [x:higher|lower] than before.
        """,
    ),
}

DOSE = {
    "train": templates(
        """
        01 10 :: The patient takes {a} [a:* mg] and {b} [b:* mg].
        01 10 :: Drug chart: [a:* mg] of {a}, [b:* mg] of {b}.
        0 1 :: {a} was changed [a:from ~ mg to * mg].
        01 10 :: {a} is given at [a:* mg] and {b} at [b:* mg].
        02 12 :: {a} stays at [a:* mg]; the dose of {b} [b:is not recorded].
        20 21 :: The dose of {a} [a:is not recorded], but {b} is given at [b:* mg].
        0 1 :: We moved {a} [a:to * mg from ~ mg].
        """,
        """
        The patient takes [x:* mg] of {x}.
        {x} is given at [x:* mg].
        The dose of {x} is [x:* mg].
        """,
    ),
    "validation": templates(
        """
        01 10 :: On the chart {a} is at [a:* mg] and {b} at [b:* mg].
        0 1 :: The dose of {a} was moved [a:from ~ mg to * mg].
        02 12 :: The patient takes [a:* mg] of {a}, and for {b} the dose [b:is not recorded].
        """,
        """
        On the chart {x} is at [x:* mg].
        Now the patient takes [x:* mg] of {x}.
        """,
    ),
    "test": templates(
        """
        01 10 :: The chart shows {a} at [a:* mg] and {b} at [b:* mg].
        0 1 :: The team changed {a} [a:from ~ mg to * mg].
        20 21 :: For {a} the dose [a:is not recorded]; the patient takes [b:* mg] of {b}.
        01 10 :: The patient is given [a:* mg] of {a} and [b:* mg] of {b}.
        """,
        """
        The patient now takes [x:* mg] of {x}.
        For this patient the dose of {x} is [x:* mg].
        """,
    ),
}
