"""The rows that no segment has seen yet, in the order in which they may start."""

import math
from collections.abc import Iterable

from serve.engine.batch_selection import SizeLimits, select_batch
from serve.engine.client_queues import ClientQueues, Waiting
from serve.engine.cost_model import CostModel, SegmentCost
from serve.engine.merge_policy import ENOUGH_IN_HASTE, enough_rows, rows_beside
from serve.engine.row import Priority, Row

# Where launches are dear: the share of the model that a row is assumed to run, as rows leave early.
# The true share is lower; a larger value keeps batches smaller, so that first rows wait less.
STAY = 0.7

# Elsewhere: the share of its launches that one more batch is assumed to cost, since the rows that
# are left for it start together with later rows.
NEXT_BATCH = 0.7

# The share of the machine that a request of many rows gets while other requests come. With all of
# it, other texts would wait behind the whole request; with less, large requests would take longer.
SHARE_OF_MACHINE = 0.25

# A row is left out of a batch for a more urgent one only if its own deadline is later by at least
# so many run times. If all deadlines are close, leaving rows out would only make those late.
PATIENT = 5.0

# How many batches' worth of waiting rows are searched for rows of like length.
LOOKAHEAD = 4

# Where launches are cheap: rows start with the first one only if they came in this first part of
# the time for which it has waited. With all that wait, rows of rare length would be overtaken again
# and again; with fewer, more is padded, and batches are smaller. Single texts in six layers of one
# core, 16 and 64 clients: 8 and 16 % less p99 for 3 to 4 % of the answers per second.
EARLY = 0.75


class WaitingQueue:
    """A queue by client and rank, from whose head rows of like length are taken together."""

    def __init__(self, aging_s: float) -> None:
        """Start empty.

        Args:
            aging_s: waiting so much longer makes up for one priority less.
        """
        self._aging_s = aging_s
        self._queue = ClientQueues()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def first(self) -> Row:
        """The row that may start next."""
        return self._queue.first()

    def add(self, rows: Iterable[Row], costs: CostModel) -> None:
        """Take in new rows, in order.

        Args:
            rows: admitted ones.
            costs: as they are known now; they place the rows of large requests.
        """
        for row in rows:
            self._queue.add(self._place(row, costs))

    def drop_expired(self, now_s: float) -> list[Row]:
        """Remove and return the rows that are cancelled, or too late to start."""
        # Read once: a row may be cancelled by another thread at any moment. One short pass: the
        # queue may be long, and it is looked through between two runs.
        gone = [row for row in self._queue.rows if row.cancelled or row.deadline_s <= now_s]
        if gone:
            self._queue.remove(gone)
        return gone

    def level(self, row: Row, now_s: float) -> int:
        """Return the row's priority, which gets better while it waits; not beyond normal."""
        aged = int((now_s - row.admitted_s) / self._aging_s)
        return max(row.priority - aged, min(row.priority, Priority.NORMAL))

    def pop(self, ahead: SegmentCost, limits: SizeLimits, now_s: float) -> list[Row]:
        """Remove and return the first row and those that start with it, in order.

        The choice is made among the rows that wait now, where launches are cheap only among the
        `EARLY` ones: a choice made before would leave out later rows, and cut the queue into small
        batches of unlike rows. Rows of a worse priority start
        too only as far as `serve.engine.merge_policy` lets them. If the full batch would make the
        first row late, rows with later deadlines are left for the next batch.

        Args:
            ahead: cost of the whole way through the model.
            limits: on a batch.
            now_s: on the clock of deadlines.
        """
        head = self._queue.head(LOOKAHEAD * limits.max_rows, now_s)
        if not limits.launch_bound(ahead):
            head = _early(head, now_s)
        places = self._select([entry.row for entry in head], ahead, limits, now_s)
        taken = [head[place] for place in places]
        self._queue.take(taken, now_s)
        return [entry.row for entry in taken]

    def pop_only(self) -> Row:
        """Remove and return the only row."""
        (row,) = self._queue.rows
        self._queue = ClientQueues()
        return row

    def _select(
        self, window: list[Row], ahead: SegmentCost, limits: SizeLimits, now_s: float
    ) -> list[int]:
        """Return the places of the first row and of those that start with it, ascending."""
        likely, lengths = likely_cost(ahead, limits), [row.num_tokens for row in window]
        places = select_batch(lengths, likely, limits)
        level = self.level(window[0], now_s)
        worse = [i for i in places if window[i].priority > level]
        if worse:
            worse = [i for i in worse if self.level(window[i], now_s) > level]
            longest = max([lengths[i] for i in places])
            left_out = worse[rows_beside(likely, len(places) - len(worse), longest, limits) :]
            places = [i for i in places if i not in left_out]
        return _in_time(places, window, ahead, limits, now_s)

    def _place(self, row: Row, costs: CostModel) -> Waiting:
        """Return the row's place among those of its client, which waiting does not change.

        A row of a large request counts as having come when the rows of its request before it
        would be done on `SHARE_OF_MACHINE` (the virtual start of fair queueing, Demers et al.
        1989). A single text then does not wait for the whole of a large request that came before
        it, and a request that is alone still gets the whole machine.

        Rows of a lower priority stand behind rows that come `aging_s` later. A request that must
        start within that time counts as if it had come earlier: earliest deadline first.
        """
        _, per_token_s, per_pair_s = costs.remaining(0)
        token_s, come_s = per_token_s + per_pair_s * row.num_tokens, row.admitted_s
        if row.deadline_s < math.inf:
            start_s = row.deadline_s - 2 * costs.remaining_s(0, 1, row.num_tokens)
            come_s = min(come_s, start_s - self._aging_s)
        late_s = (row.priority - 1) * self._aging_s
        rank = come_s + token_s * row.ahead_tokens / SHARE_OF_MACHINE + late_s
        return Waiting(rank, late_s, token_s * row.num_tokens, row)


def _early(head: list[Waiting], now_s: float) -> list[Waiting]:
    """Return the entries that came early enough to start with the first, see `EARLY`."""
    came_s = head[0].row.admitted_s
    last_s = came_s + EARLY * (now_s - came_s)
    return [head[0], *(entry for entry in head[1:] if entry.row.admitted_s <= last_s)]


def likely_cost(ahead: SegmentCost, limits: SizeLimits) -> SegmentCost:
    """Return the cost by which rows that start together are chosen, from that of all segments."""
    fixed_s, *per_token_s = ahead
    if limits.launch_bound(ahead):
        return SegmentCost(fixed_s, *(STAY * each_s for each_s in per_token_s))
    return SegmentCost(NEXT_BATCH * fixed_s, *per_token_s)


def _in_time(
    places: list[int], window: list[Row], ahead: SegmentCost, limits: SizeLimits, now_s: float
) -> list[int]:
    """Return the places without some that can wait, if that lets the first row be in time."""
    due_s = window[0].deadline_s
    run_s = ahead.seconds(len(places), max([window[i].num_tokens for i in places]))
    if now_s + run_s <= due_s:
        return places
    pressed = [i for i in places if window[i].deadline_s < due_s + PATIENT * run_s]
    longest = max([window[i].num_tokens for i in pressed])
    each_s = ahead.seconds(1, longest) - ahead.fixed_s
    room = int((due_s - now_s - ahead.fixed_s) / each_s) if each_s else 0
    if room < max(len(pressed), enough_rows(ahead, longest, limits, ENOUGH_IN_HASTE)):
        return places
    patient = [i for i in places if i not in pressed and window[i].num_tokens <= longest]
    return sorted([*pressed, *patient[: room - len(pressed)]])
