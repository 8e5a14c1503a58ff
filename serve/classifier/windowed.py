"""The rows of texts that were cut into windows, and the answers of such texts."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.classifier.flagger import Flagger, probabilities
from serve.engine.row import Answer, Row
from serve.policy.profile import Windows
from serve.rules.criterion import Reason
from serve.rules.traits import Task
from serve.tokenization.tokenizer import Tokens
from serve.tokenization.windows import Cut


class WindowsReport(NamedTuple):
    """What became of a text's windows.

    Attributes:
        num_windows: how many there were.
        answered: the one that decided, counted from 0: with `any` the first to be flagged, else
            the one where the answer's label has its highest score; of tokens, the deepest.
        span: the window's characters in the text: the first, and the one after the last.
        exit_indices: where those left that have an answer.
    """

    num_windows: int
    answered: int
    span: tuple[int, int]
    exit_indices: tuple[int, ...]


class Combined(NamedTuple):
    """The answer of a text, the tokens that it is about, and the report."""

    answer: Answer
    tokens: Tokens
    report: WindowsReport


def combine(
    text: Cut, answers: Sequence[Answer | None], winner: int | None, windows: Windows, task: Task
) -> Combined:
    """Return the answer of a text; its reason is `deadline` if that of any window it rests on is.

    Args:
        text: cut into windows.
        answers: answers of its windows; None for those that were cancelled, if there is a winner.
        winner: the window that has answered for all.
        windows: how to combine.
        task: the model's task.
    """
    done = [answer for answer in answers if answer is not None]
    cut_short = any(answer.reason is Reason.DEADLINE for answer in done)
    if winner is not None:
        answer, tokens, decided = answers[winner], text.windows[winner], winner
        assert answer is not None
    elif task == "token":
        tokens, decided = text.whole, int(np.argmax([a.exit_index for a in done]))
        logits = _joined(text, [each.logits for each in done])
        mapped = _joined(text, [each.score_logits for each in done])
        answer = done[decided]._replace(logits=logits, mapped=mapped)
    else:
        tokens = text.whole
        answer, decided = _of_labels(done, windows.combine == "mean", task)
    exits = tuple(each.exit_index for each in done)
    report = WindowsReport(len(text.windows), decided, text.spans[decided], exits)
    if cut_short and winner is None:
        answer = answer._replace(reason=Reason.DEADLINE)
    return Combined(_with_times(answer, done), tokens, report)


def _of_labels(answers: Sequence[Answer], mean: bool, task: Task) -> tuple[Answer, int]:
    """Return the answer and the window that decided."""
    logits = np.stack([answer.logits for answer in answers])  # (windows, labels)
    mapped = np.stack([answer.score_logits for answer in answers])
    if task == "regression":
        value = logits.mean(axis=0) if mean else logits.max(axis=0)
        decided = int(np.abs(logits - value)[:, 0].argmin())
        return answers[decided]._replace(logits=value), decided
    p = np.stack([probabilities(answer, task == "multi_label") for answer in answers])
    scores = p.mean(axis=0, dtype=np.float64).astype(np.float32) if mean else p.max(axis=0)
    decided = int(p[:, scores.argmax()].argmax())
    chosen = answers[decided]._replace(label=-1)
    if task == "multi_label":
        if mean:
            return chosen._replace(logits=_log_odds(scores), mapped=None), decided
        return chosen._replace(logits=logits.max(axis=0), mapped=mapped.max(axis=0)), decided
    with np.errstate(divide="ignore"):
        return chosen._replace(logits=np.log(scores), scores=scores, mapped=None), decided


def _log_odds(p: NDArray[np.float32]) -> NDArray[np.float32]:
    exact = p.astype(np.float64)
    with np.errstate(divide="ignore"):
        odds: NDArray[np.float32] = (np.log(exact) - np.log1p(-exact)).astype(np.float32)
    return odds


def _joined(text: Cut, logits: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return logits for all tokens of a text, each from its window with most on either side.

    Those of the special tokens before and after the text are of its first and last window.
    """
    before, owner = text.num_before, text.owners()
    joined = np.empty((len(text.whole.input_ids), logits[0].shape[1]), np.float32)
    for window, (start, end) in enumerate(text.bounds):
        own = np.flatnonzero(owner[start:end] == window)
        joined[before + start + own] = logits[window][before + own]
    joined[:before] = logits[0][:before]
    after = before + len(owner)
    if after < len(joined):
        joined[after:] = logits[-1][after - len(joined) :]
    return joined


def _with_times(answer: Answer, answers: Sequence[Answer]) -> Answer:
    return answer._replace(
        cached=all(each.cached for each in answers),
        queue_s=max(each.queue_s for each in answers),
        compute_s=max(each.compute_s for each in answers),
    )


class Windowed:
    """The rows of a request of which at least one text has several windows. On one event loop.

    Under `any` the first window that is flagged ends the work on its text.

    Attributes:
        tokens: tokens of each row, in order: each text, or each window of it.
        winners: for each text, the place of the row that has answered for it.
    """

    def __init__(
        self, texts: Sequence[Tokens | Cut], windows: Windows, flagger: Flagger | None, task: Task
    ) -> None:
        """Lay out the rows of the texts."""
        self.tokens: list[Tokens] = []
        self.winners: dict[int, int] = {}
        self._texts, self._windows, self._task = texts, windows, task
        self._flagger = flagger if windows.combine == "any" else None
        self._text_of: list[int] = []
        for place, text in enumerate(texts):
            self.tokens += text.windows if isinstance(text, Cut) else [text]
            self._text_of += [place] * num_windows(text)
        self._sizes = Counter(self._text_of)
        self._rows: Sequence[Row] = ()
        self._open = set(range(len(self._text_of)))

    def start(self, rows: Sequence[Row]) -> None:
        """Take the rows, before any of them has an outcome."""
        self._rows = rows

    def whole(self, place: int) -> bool:
        """Tell whether a row is a whole text, and no window of one."""
        return not isinstance(self._texts[self._text_of[place]], Cut)

    def text_of(self, place: int) -> int:
        """Return the place of a row's text."""
        return self._text_of[place]

    def over(self, place: int) -> bool:
        """Tell whether a row's text has been answered by another row."""
        return self._text_of[place] in self.winners

    def finish(self, place: int, answer: Answer) -> int:
        """Take the answer of a row; return how many rows need none any more."""
        self._open.discard(place)
        text = self._text_of[place]
        if self._flagger is None or self._sizes[text] == 1:
            return 0
        if not self._flagger.flags(answer, self.tokens[place]):
            return 0
        self.winners[text] = place
        others = [other for other in self._open if self._text_of[other] == text]
        for other in others:
            self._rows[other].cancelled = True
        self._open.difference_update(others)
        return len(others)

    def combined(
        self, answers: Sequence[Answer | None]
    ) -> tuple[list[Answer], list[Tokens], dict[int, WindowsReport]]:
        """Return the answers of the texts, what each is about, and the reports of cut ones.

        Rows that were cancelled have no answer.
        """
        of_texts, tokens, reports = list[Answer](), list[Tokens](), dict[int, WindowsReport]()
        first = 0
        for place, text in enumerate(self._texts):
            end = first + num_windows(text)
            answer, about = answers[first], text
            if isinstance(text, Cut):
                winner = self.winners.get(place)
                decided = None if winner is None else winner - first
                own = answers[first:end]
                answer, about, reports[place] = combine(
                    text, own, decided, self._windows, self._task
                )
            assert answer is not None
            assert isinstance(about, Tokens)
            of_texts.append(answer)
            tokens.append(about)
            first = end
        return of_texts, tokens, reports


def num_windows(text: Tokens | Cut) -> int:
    """Return how many rows an input has."""
    return len(text.windows) if isinstance(text, Cut) else 1


def num_tokens(text: Tokens | Cut) -> int:
    """Return the tokens of an input, those that its windows share once."""
    return len((text.whole if isinstance(text, Cut) else text).input_ids)
