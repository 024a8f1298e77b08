"""Frames about what the patient has: negation, uncertainty, and classes of diagnoses. 0 has, 1 has not, 2 open."""

from __future__ import annotations

from headwise.data.clinic.frames import templates

NEGATION = {
    "train": templates(
        """
        01 10 :: The patient [a:reports|denies] {a} but [b:reports|denies] {b}.
        all :: On the round there was [a:definite|no] {a} and [b:definite|no] {b}.
        all :: Came in [a:with|without] {a} and [b:with|without] {b}.
        all :: {a} [a:is present|is absent]; {b} [b:is present|is absent].
        11 :: [ab:Neither] {a} [ab:nor] {b} was found by the nurse.
        00 :: The patient [ab:complains of] both {a} and {b}.
        02 12 :: The patient [a:has|does not have] {a}; {b} [b:runs in the family].
        20 21 :: A [a:sister has] {a}; the patient [b:has|does not have] {b}.
        02 12 :: The nurse noted [a:definite|no] {a}; a [b:brother suffers from] {b}.
        all :: The patient [a:suffers from|is free of] {a} and [b:suffers from|is free of] {b}.
        01 10 :: Today {a} [a:is present|is absent], whereas the patient [b:reports|denies] {b}.
        0 1 :: The patient [a:complains of|denies] {a}.
        """,
        """
        The patient [x:has|does not have] {x}.
        {x} [x:is present|is absent].
        There is [x:definite|no] {x}.
        The patient [x:suffers from|is free of] {x}.
        The patient [x:reports|denies] {x}.
        """,
    ),
    "validation": templates(
        """
        all :: When asked, the patient [a:reports|denies] {a}, and {b} [b:is present|is absent].
        02 12 :: Seen [a:with|without] {a}; a [b:sister has] {b}.
        20 21 :: {a} [a:runs in the family], and the patient [b:suffers from|is free of] {b}.
        01 10 :: There is [a:definite|no] {a}, but the patient [b:has|does not have] {b}.
        """,
        """
        So far the patient [x:has|does not have] {x}.
        In this note {x} [x:is present|is absent].
        Now there is [x:definite|no] {x}.
        """,
    ),
    "test": templates(
        """
        all :: Now the patient [a:complains of|denies] {a}, and {b} [b:is present|is absent].
        01 10 :: In the note there is [a:definite|no] {a}, but the patient [b:reports|denies] {b}.
        02 12 :: The patient [a:suffers from|does not have] {a}, and a [b:sister has] {b}.
        20 21 :: {a} [a:runs in the family]; the patient [b:reports|is free of] {b}.
        all :: Seen today [a:with|without] {a}; the patient [b:has|does not have] {b}.
        """,
        """
        Today the patient [x:has|does not have] {x}.
        On the round {x} [x:is present|is absent].
        In this patient there is [x:definite|no] {x}.
        """,
    ),
}

UNCERTAINTY = {
    "train": templates(
        """
        02 12 :: {a} [a:was confirmed|was ruled out], but {b} [b:cannot be excluded].
        20 21 :: [a:Possible] {a}; {b} [b:was confirmed|was ruled out].
        02 12 :: The work-up [a:shows|does not show] {a} and [b:may show] {b}.
        20 21 :: It is [a:unclear whether] the patient has {a}; {b} [b:is certain|was excluded].
        20 21 :: We [a:suspect] {a} and have [b:confirmed|ruled out] {b}.
        02 12 :: Testing [a:confirmed|excluded] {a}; {b} [b:remains possible].
        20 21 :: {a} [a:is still being considered], whereas {b} [b:is certain|was ruled out].
        all :: {a} [a:was confirmed|was excluded] and {b} [b:was confirmed|was excluded].
        01 10 :: The work-up [a:confirmed|ruled out] {a} but [b:confirmed|ruled out] {b}.
        0 1 :: The work-up [a:shows|does not show] {a}.
        0 1 :: Testing [a:confirmed|excluded] {a}.
        0 1 :: {a} [a:is certain|was ruled out].
        """,
        """
        The patient [x:has|does not have] {x}.
        {x} [x:was found|was not found].
        The work-up [x:shows|does not show] {x}.
        {x} [x:is certain|was ruled out].
        """,
    ),
    "validation": templates(
        """
        02 12 :: By now {a} [a:is certain|was ruled out], and {b} [b:may be] there too.
        20 21 :: {a} [a:remains possible] and the work-up [b:shows|does not show] {b}.
        02 12 :: We have [a:confirmed|excluded] {a} and still [b:suspect] {b}.
        0 1 :: By now {a} [a:was confirmed|was excluded].
        all :: After the work-up {a} [a:was confirmed|was excluded] and {b} [b:was confirmed|was excluded].
        """,
        """
        In this patient {x} [x:was found|was not found].
        By now the patient [x:has|does not have] {x}.
        """,
    ),
    "test": templates(
        """
        02 12 :: So far {a} [a:was confirmed|was excluded], while {b} [b:remains possible].
        20 21 :: {a} [a:cannot be excluded], and the work-up [b:shows|does not show] {b}.
        02 12 :: We have [a:confirmed|ruled out] {a}, but it is [b:unclear whether] there is {b}.
        02 12 :: After the round {a} [a:is certain|was ruled out] and {b} [b:is still being considered].
        01 10 :: Testing shows that {a} [a:is certain|was excluded]; {b} [b:was confirmed|was ruled out].
        0 1 :: After the work-up {a} [a:was confirmed|was excluded].
        0 1 :: The testing so far [a:shows|does not show] {a}.
        all :: After the round {a} [a:is certain|was ruled out] and {b} [b:is certain|was ruled out].
        """,
        """
        After the work-up the patient [x:has|does not have] {x}.
        On the work-up {x} [x:was found|was not found].
        In this patient {x} [x:is certain|was ruled out].
        """,
    ),
}

HYPERNYM = {
    "train": templates(
        """
        all :: The letter [a:lists|rules out] {a} and [b:lists|rules out] {b}.
        0 1 :: {a} [a:was diagnosed|was never found] in this patient.
        all :: Past history: {a} [a:is known|was never found], {b} [b:is known|was never found].
        0 1 :: The patient is [a:treated for|free of] {a}.
        all :: Tests [a:confirmed|excluded] {a}; {b} [b:was diagnosed|was never found] as well.
        0 1 :: The clinic [a:confirmed|excluded] {a}.
        all :: There is [a:definite|no] {a} and [b:definite|no] {b}.
        """,
        """
        The patient [x:has|does not have] {x}.
        {x} [x:is present|is absent].
        The patient [x:suffers from|is free of] {x}.
        There is [x:definite|no] {x}.
        """,
    ),
    "validation": templates(
        """
        0 1 :: From the letter: {a} [a:is known|was never found].
        all :: Last year the clinic [a:confirmed|excluded] {a} and [b:confirmed|excluded] {b}.
        all :: The patient is [a:treated for|free of] {a}, and {b} [b:was diagnosed|was never found].
        """,
        """
        In this note the patient [x:has|does not have] {x}.
        For this patient {x} [x:is present|is absent].
        """,
    ),
    "test": templates(
        """
        0 1 :: The history shows that {a} [a:was diagnosed|was never found].
        all :: The tests [a:confirmed|excluded] {a} and [b:confirmed|excluded] {b}.
        all :: For a year the patient has been [a:treated for|free of] {a}; {b} [b:is known|was never found].
        0 1 :: In the last letter there is [a:definite|no] {a}.
        """,
        """
        By history the patient [x:has|does not have] {x}.
        By the letter {x} [x:is present|is absent].
        This patient [x:suffers from|is free of] {x}.
        """,
    ),
}
