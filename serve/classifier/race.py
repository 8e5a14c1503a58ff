"""The windows of texts under `any`: the first that is flagged ends the work on its text."""

from collections import Counter
from collections.abc import Callable, Sequence

from serve.engine.row import Answer, Row


class Race:
    """Cancels the rows of texts that one of their windows has answered. On one event loop.

    Attributes:
        winners: by text, the place of the row that has answered for it.
    """

    def __init__(self, text_of: Sequence[int], flagged: Callable[[int, Answer], bool]) -> None:
        # `text_of` tells for each row which text it is a window of.
        self.winners: dict[int, int] = {}
        self._text_of, self._flagged = text_of, flagged
        self._rows: Sequence[Row] = ()
        self._sizes = Counter(text_of)
        self._open = set(range(len(text_of)))

    def start(self, rows: Sequence[Row]) -> None:
        """Take the rows, before any of them has an outcome."""
        self._rows = rows

    def over(self, place: int) -> bool:
        """Tell whether a row's text has been answered by another row."""
        return self._text_of[place] in self.winners

    def finish(self, place: int, answer: Answer) -> int:
        """Take the answer of a row; return how many rows need none any more."""
        self._open.discard(place)
        text = self._text_of[place]
        if self._sizes[text] == 1 or not self._flagged(place, answer):
            return 0
        self.winners[text] = place
        others = [other for other in self._open if self._text_of[other] == text]
        for other in others:
            self._rows[other].cancelled = True
        self._open.difference_update(others)
        return len(others)
