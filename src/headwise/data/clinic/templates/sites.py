"""Frames about where on the body something is. Sides: 0 left, 1 right, 2 open. Sites: the value is the site."""

from __future__ import annotations

from headwise.data.clinic.frames import templates

SIDE = {
    "train": templates(
        """
        all 02 12 20 21 :: A {a} is on [a:the left|the right|one] {as} and a {b} on [b:the left|the right|one] {bs}.
        all :: A {a} was seen on the [a:left|right] {as}; the [b:left|right] {bs} has a {b}.
        0 1 :: The [a:left|right] {as} shows a {a}.
        all 02 12 :: Found: {a} on [a:the left|the right] {as}, {b} on [b:the left|the right|one] {bs}.
        0 1 :: A {a} covers part of the [a:left|right] {as}.
        all :: The patient points to a {a} on the [a:left|right] {as} and to a {b} on the [b:left|right] {bs}.
        20 21 :: The {a} on [a:one] {as} is old; the {b} on the [b:left|right] {bs} is new.
        01 10 :: New dressing for the {a} on the [a:left|right] {as}, not for the {b} on the [b:left|right] {bs}.
        """,
        """
        The {x} is on the [x:left|right] {xs}.
        The [x:left|right] {xs} has the {x}.
        The {x} was seen on the [x:left|right] side.
        It is the [x:left|right] {xs} that shows the {x}.
        """,
    ),
    "validation": templates(
        """
        all :: The [a:left|right] {as} has a {a} and the [b:left|right] {bs} has a {b}.
        02 12 :: We found a {a} on the [a:left|right] {as} and a {b} on [b:one] {bs}.
        0 1 :: There is a new {a} on the [a:left|right] {as}.
        """,
        """
        We found the {x} on the [x:left|right] {xs}.
        The side of the {x} is [x:left|right].
        """,
    ),
    "test": templates(
        """
        all :: On the [a:left|right] {as} there is a {a}, and on the [b:left|right] {bs} a {b}.
        20 21 :: The patient has a {a} on [a:one] {as} and a {b} on the [b:left|right] {bs}.
        01 10 :: An old {a} is seen on the [a:left|right] {as}, a new {b} on the [b:left|right] {bs}.
        0 1 :: The dressing on the [a:left|right] {as} covers a {a}.
        """,
        """
        The side with the {x} is the [x:left|right] one.
        On the [x:left|right] {xs} there is the {x}.
        The patient has the {x} on the [x:left|right] {xs}.
        """,
    ),
}

PLACE = {
    "train": templates(
        """
        01 10 :: There is a {a} on the [a:*] and a {b} on the [b:*].
        01 10 :: The [a:*] has a {a}, the [b:*] has a {b}.
        01 10 :: A {a} was seen; it is on the [a:*]. The {b} is on the [b:*].
        01 10 :: Photographs show a {a} of the [a:*] as well as a {b} of the [b:*].
        02 12 :: A {a} covers the [a:*]; the place of the {b} [b:is not recorded].
        20 21 :: It [a:is not said where] the {a} is; the {b} is on the [b:*].
        0 1 :: The patient points to a {a} on the [a:*].
        """,
        """
        The {x} is on the [x:*].
        The [x:*] has the {x}.
        The {x} was seen on the [x:*].
        """,
    ),
    "validation": templates(
        """
        01 10 :: We found a {a} on the [a:*] as well as a {b} on the [b:*].
        02 12 :: The {a} is on the [a:*], but for the {b} the place [b:is not recorded].
        01 10 :: On the [a:*] there is a {a}; on the [b:*], a {b}.
        """,
        """
        We found the {x} on the [x:*].
        The place of the {x} is the [x:*].
        """,
    ),
    "test": templates(
        """
        01 10 :: A {a} is seen on the [a:*], a {b} on the [b:*].
        01 10 :: The photographs of the [a:*] show a {a}, those of the [b:*] a {b}.
        20 21 :: For the {a} the place [a:is not recorded]; a {b} is on the [b:*].
        0 1 :: The patient has a {a}, and it covers part of the [a:*].
        """,
        """
        The patient has the {x} on the [x:*].
        It is the [x:*] that shows the {x}.
        """,
    ),
}
