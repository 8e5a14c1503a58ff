"""Which texts are audited: drawn before anything of them is looked at."""

import hashlib
import math
import secrets
from collections.abc import Sequence

_NONE: Sequence[int] = ()


class Draw:
    """Draws each text of a model's answered requests with the same probability.

    A hash of the drawn text's request and place gives the gap to the next one, by the distribution
    that gaps have between texts that are drawn independently. So a request costs the same whether
    it has one text or 1,000. A request is known by its number in this process, not by the id that
    its client may have chosen, and a secret of the process is part of the hash: no client can tell
    which text will be drawn.
    """

    def __init__(self, key: bytes | None = None) -> None:
        """Start before the first request; tests may choose the key."""
        self._key = key or secrets.token_bytes(16)
        self._number, self._share = 0, 0.0
        self._gap = 0  # texts that are not drawn before the next one is

    def places(self, num_texts: int, share: float) -> Sequence[int]:
        """Return the places of the next request's texts that are drawn, ascending.

        Args:
            num_texts: how many it has.
            share: probability of each, from 0 to 1.
        """
        if share != self._share:
            self._share = share
            self._gap = self._gap_after(-1)
        self._number += 1
        if self._gap >= num_texts or not share:
            self._gap -= num_texts
            return _NONE
        found = []
        place = self._gap
        while place < num_texts:
            found.append(place)
            place += 1 + self._gap_after(place)
        self._gap = place - num_texts
        return found

    def _gap_after(self, place: int) -> int:
        """Return how many texts after a place of the request are passed over."""
        if self._share in (0, 1):
            return 0
        text = b"%d/%d" % (self._number, place)
        hashed = hashlib.blake2b(text, digest_size=8, key=self._key).digest()
        uniform = (int.from_bytes(hashed) + 1) / 2.0**64  # from (0, 1]
        return int(math.log(uniform) / math.log1p(-self._share))
