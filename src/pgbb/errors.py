"""The one family of errors and warnings that pgbb raises on purpose.

A message says what was given, what is allowed and what to write instead, and never contains a value read from records.
"""


class PgbbError(Exception):
    """Base class of every error that pgbb raises on purpose.

    `answered` is true where records had answered before it: then the budget counts as spent.
    """

    answered = False


class InvalidValue(PgbbError, ValueError):
    """An argument lies outside its allowed range."""


class NotCertifiable(PgbbError):
    """The question is well posed, but no number can be certified as its answer."""


class PgbbWarning(UserWarning):
    """The call is allowed, but its result deserves a second look."""


class PgbbNote(PgbbWarning):
    """Nothing is wrong, but the caller should know."""
