"""Which rows run next: bookkeeping only, without clock, threads or ONNX Runtime.

Rows go together when that saves time by the measured costs (`serve.engine.cost_model`): what
padding costs against what a launch costs. The deepest batch goes first, so rows leave as soon as
they can, and new rows start when nothing else flies: all the more of them, alike in length
(`serve.engine.batch_selection`). A busy server does more than that: as long as a full batch could
start, a batch in flight that has shrunk so far that a full one does twice its rows per second is
parked at its depth, if others can catch up with it well before its time is up. That pays where
launches are dear (a GPU) and never happens where they are not.

That time is meant for p99: rows that can still be answered within `max_hold_passes` of their
admission are held no longer than until then. Rows that started too late for that are held as
long from their start: under overload it is the pace that counts.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from serve.engine.batch import Batch
from serve.engine.batch_selection import Bounds
from serve.engine.cost_model import CostModel, SegmentCost
from serve.engine.merge_policy import ENOUGH_IN_HASTE, Load, enough_rows, should_merge
from serve.engine.row import Row
from serve.engine.waiting_queue import WaitingQueue

# Before anything is measured: a launch costs as much as fifty tokens.
_GUESS = SegmentCost(fixed_s=1e-3, per_token_s=2e-5)

# A batch with fewer rows per second than this share of a full one's is not worth a launch yet.
WORTHY = 0.5

# Others must be able to catch up with a parked batch in half of the time that it has left.
CATCH_UP = 2.0


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How large a batch may grow and how long one may be held back.

    Attributes:
        max_rows: rows in a batch.
        max_tokens: rows times the longest row, so that one batch's segment stays short.
        max_hold_passes: rows in flight are parked no more after so long, in times that the
            longest alone would take through the whole model: since admission, or, of rows that
            waited longer than that, since they started.
        aging_s: waiting so much longer makes up for one priority less.
    """

    max_rows: int = 64
    max_tokens: int = 2048
    max_hold_passes: float = 5.0
    aging_s: float = 5.0


@dataclass(slots=True, eq=False)
class BatchGroup:
    """Batches that will go on together; without batches, the fresh batch that could start."""

    depth: int
    level: int
    deadline_s: float
    held_from_s: float
    num_rows: int = 0
    longest: int = 0
    parked_until_s: float = math.inf
    start_by_s: float = math.inf
    batches: list[Batch] = field(default_factory=list)

    @property
    def load(self) -> Load:
        """What there is of it."""
        return Load(self.num_rows, self.longest, self.level, self.deadline_s)


class Scheduler:
    """Rows waiting at depth 0 and batches in flight."""

    def __init__(
        self, num_segments: int, limits: BatchLimits, costs: CostModel, shared: bool = False
    ) -> None:
        """Start empty.

        Args:
            num_segments: how deep rows may go.
            limits: bounds on batches.
            costs: what batches cost; followed as it learns.
            shared: all depths are the same layer, so rows at any depth may go together.
        """
        self._limits = limits
        self._measured = costs
        self._guessed = CostModel.of([_GUESS] * num_segments)
        self._shared = shared
        self._arrivals: list[Row] = []  # not in the queue yet: a row that goes alone needs no place
        self._waiting = WaitingQueue(limits.aging_s)
        self._parties: list[BatchGroup] = []

    def __bool__(self) -> bool:
        return bool(self._arrivals or self._waiting or self._parties)

    @property
    def num_waiting(self) -> int:
        """Rows that no segment has seen yet."""
        return len(self._arrivals) + len(self._waiting)

    @property
    def _bounds(self) -> Bounds:
        limits = Bounds(self._limits.max_rows, self._limits.max_tokens)
        return limits.enough(self._costs.remaining(0))

    @property
    def _costs(self) -> CostModel:
        return self._measured if self._measured.known else self._guessed

    def add(self, rows: Iterable[Row]) -> None:
        """Take in new rows, in order."""
        self._arrivals += rows

    def requeue(self, batch: Batch, now_s: float) -> None:
        """Take back a batch after a segment, one deeper; an empty one is dropped."""
        if not batch.rows:
            return
        party = next((p for p in self._parties if self._meet(p, batch, now_s)), None)
        if not party:
            party = BatchGroup(batch.depth, batch.level, batch.deadline_s, batch.held_from_s)
            self._parties.append(party)
        party.batches.append(batch)
        party.depth = min(party.depth, batch.depth)
        party.level = min(party.level, batch.level)
        party.deadline_s = min(party.deadline_s, batch.deadline_s)
        party.held_from_s = min(party.held_from_s, batch.held_from_s)
        party.num_rows += len(batch.rows)
        party.longest = max(party.longest, batch.longest)
        self._set_due(party)

    def hold(self, batch: Batch, started_s: float) -> None:
        """Set from when on it counts how long the batch may be held back."""
        admitted_s = batch.rows[0].admitted_s
        in_time = started_s < admitted_s + self._hold_s(batch.longest)
        batch.held_from_s = admitted_s if in_time else started_s

    def drop_expired(self, now_s: float) -> list[Row]:
        """Give up the rows that no segment has seen yet and that are cancelled or too late."""
        self._line_up()
        return self._waiting.drop_expired(now_s)

    def pop_single(self, takes: Callable[[Row], bool]) -> Row | None:
        """Give up the only row there is; None if there are others, or it has started.

        Args:
            takes: whether to, of that row.
        """
        came, waiting = self._arrivals, self._waiting
        if self._parties or len(came) + len(waiting) != 1:
            return None
        if not takes(came[0] if came else waiting.lead):
            return None
        return came.pop() if came else waiting.take_only()

    def schedule(self, now_s: float) -> list[Batch]:
        """Return the batches to be joined and run next: at one depth, unless layers are shared."""
        self._line_up()
        if not self._waiting and len(self._parties) == 1:
            return self._depart(self._parties[0])
        if not self._parties and len(self._waiting) == 1:
            return [self._take_fresh([0], now_s)]
        fresh = self._fresh_party(now_s)
        chosen = self._choose(fresh, now_s)
        if not fresh:
            return self._depart(chosen)
        if self._shared:
            return self._with_fresh(chosen, fresh, now_s)
        if chosen is fresh:
            return [self._take_fresh(self._company(now_s), now_s)]
        return self._depart(chosen)

    def _line_up(self) -> None:
        """Give those who came their places in the queue, as it must be before a choice is made."""
        if self._arrivals:
            self._waiting.add(self._arrivals, self._costs)
            self._arrivals = []

    def _set_due(self, party: BatchGroup) -> None:
        """Work out from when on the party goes before others."""
        longest = party.longest
        party.parked_until_s = party.held_from_s + self._hold_s(longest)
        if party.deadline_s < math.inf:
            run_s = self._costs.remaining_s(party.depth, party.num_rows, longest)
            party.start_by_s = party.deadline_s - 2 * run_s

    def _hold_s(self, longest: int) -> float:
        return self._limits.max_hold_passes * self._costs.remaining_s(0, 1, longest)

    def _choose(self, fresh: BatchGroup | None, now_s: float) -> BatchGroup:
        """Return the party that is due, else the deepest of the best level that is not parked.

        Or one that would have to start before the other's segment is done.
        """
        parties = [*self._parties, fresh] if fresh else self._parties
        level = min([party.level for party in parties])
        aging_s = self._limits.aging_s
        behind_s = [(party.level - level) * aging_s for party in parties]
        due_s, due = min(
            [(min(p.parked_until_s, p.start_by_s) + behind_s[i], i) for i, p in enumerate(parties)]
        )
        if due_s <= now_s:
            return parties[due]
        ready = [party for party in parties if party.level == level]
        if fresh and fresh.level == level and self._waiting.crowded(self._bounds):
            ready = [party for party in ready if party is fresh or self._goes_on(party, now_s)]
        chosen = max(ready, key=attrgetter("depth"))
        start_by_s, first = min([(p.start_by_s + behind_s[i], i) for i, p in enumerate(parties)])
        if start_by_s < math.inf and self._enough(parties[first]):
            took_s = self._costs.segment_s(chosen.depth, chosen.num_rows, chosen.longest)
            if start_by_s < now_s + took_s:
                return parties[first]
        return chosen

    def _enough(self, party: BatchGroup) -> bool:
        """Tell whether the rows are enough for batches of their own."""
        ahead = self._costs.remaining(party.depth)
        return party.num_rows >= enough_rows(ahead, party.longest, self._bounds, ENOUGH_IN_HASTE)

    def _goes_on(self, party: BatchGroup, now_s: float) -> bool:
        """Tell whether to run the batch although a full one could start.

        Either it does enough rows per second itself, or waiting for the other takes too long.
        """
        costs, depth, longest = self._costs, party.depth, party.longest
        room = self._bounds.room(longest)
        alone_s = costs.segment_s(depth, party.num_rows, longest)
        full_s = costs.segment_s(depth, room, longest)
        if party.num_rows * full_s >= WORTHY * room * alone_s:
            return True
        catch_up_s = costs.remaining_s(0, room, longest) - costs.remaining_s(depth, room, longest)
        return now_s + CATCH_UP * catch_up_s > party.parked_until_s

    def _meet(self, party: BatchGroup, batch: Batch, now_s: float) -> bool:
        """Tell whether the batch fits into the party, and it pays to go on together."""
        if party.depth != batch.depth and not self._shared:
            return False
        load = Load(len(batch.rows), batch.longest, batch.level, batch.deadline_s)
        return self._joins(max(party.depth, batch.depth), party.load, load, now_s)

    def _joins(self, depth: int, one: Load, other: Load, now_s: float) -> bool:
        return should_merge(self._costs, self._bounds, depth, one, other, now_s)

    def _company(self, now_s: float) -> list[int]:
        return self._waiting.company(self._costs.remaining(0), self._bounds, now_s)

    def _depart(self, party: BatchGroup) -> list[Batch]:
        self._parties.remove(party)
        return party.batches

    def _with_fresh(self, chosen: BatchGroup, fresh: BatchGroup, now_s: float) -> list[Batch]:
        """Return rows in flight with fresh ones beside them, if it pays; else the chosen."""
        flying = chosen
        if chosen is fresh:
            flying = max(self._parties, key=attrgetter("num_rows"), default=fresh)
        if flying is fresh:
            return [self._take_fresh(self._company(now_s), now_s)]
        together = self._company(now_s)
        longest = self._waiting.longest(together)
        room = self._bounds.room(max(flying.longest, longest)) - flying.num_rows
        joining = together[: max(room, 0)]
        others = Load(len(joining), longest, fresh.level, fresh.deadline_s)
        if joining and self._joins(flying.depth, flying.load, others, now_s):
            return [*self._depart(flying), self._take_fresh(joining, now_s)]
        return [self._take_fresh(together, now_s)] if chosen is fresh else self._depart(chosen)

    def _fresh_party(self, now_s: float) -> BatchGroup | None:
        """Return the batch that could start, as far as its first row tells."""
        if not self._waiting:
            return None
        lead = self._waiting.lead
        level = self._waiting.level(lead, now_s)
        num_rows = min(len(self._waiting), self._bounds.room(lead.num_tokens))
        party = BatchGroup(0, level, lead.deadline_s, math.inf, num_rows, lead.num_tokens)
        self._set_due(party)
        return party

    def _take_fresh(self, places: list[int], now_s: float) -> Batch:
        """Start a batch with the rows at these places of the queue."""
        batch = Batch(self._waiting.take(places))
        self.hold(batch, now_s)
        return batch
