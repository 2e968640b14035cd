"""The one error that a person is meant to read."""

from __future__ import annotations


class CleaveError(Exception):
    """Something a user can mend: what is wrong, where, and what to do.

    Holds one or more sentences; a check that found several things says them all at once.
    The command line prints the sentences and exits with code 2; nothing has been written then.
    """

    def __init__(self, *sentences: str) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = sentences
