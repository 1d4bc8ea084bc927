"""How long requests take, so that one which takes far longer can be asked anew."""

from collections import deque

_REMEMBERED = 256  # requests of about one size
_FEWEST = 64  # before anything is said of them
_RENEWED = 32  # requests after which the limit is computed anew
_SHARE = 0.95  # of the requests, which may well be slower than the usual one
_FACTOR = 2.0  # of what they take at most
_SHORTEST = 0.125  # seconds, of which limits are powers of two: each has connections of its own


class Pace:
    """The durations of the last requests by size.

    Args:
      longest: seconds, the limit that a request has anyway.

    Example:
      >>> pace = Pace(longest=10.0)
      >>> pace.limit(1000) is None
      True
      >>> for _ in range(100):
      ...     pace.add(1000, 0.2)
      >>> pace.limit(900)
      0.5
    """

    def __init__(self, longest: float):
        self._longest = longest
        self._seconds: dict[int, deque[float]] = {}
        self._added: dict[int, int] = {}
        self._limits: dict[int, float] = {}

    def add(self, size: int, seconds: float) -> None:
        """Note a request of `size` bytes."""
        kind = size.bit_length()
        found = self._seconds.setdefault(kind, deque(maxlen=_REMEMBERED))
        found.append(seconds)
        self._added[kind] = added = self._added.get(kind, 0) + 1
        if added >= _FEWEST and added % _RENEWED == 0:
            usual = sorted(list(found))[int(_SHARE * len(found))]
            limit = _SHORTEST
            while limit < _FACTOR * usual:
                limit *= 2
            self._limits[kind] = limit

    def limit(self, size: int) -> float | None:
        """Return the seconds after which to ask anew; None while that is unknown."""
        limit = self._limits.get(size.bit_length())
        return limit if limit is not None and limit < self._longest else None
