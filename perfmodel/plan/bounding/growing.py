"""Arrays that rows are added to, without copying all of them each time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Growing:
    """Rows [n, ...]; ``rows`` of those that there are now."""

    def __init__(self, rows: NDArray[Any]) -> None:
        self._data, self._size = rows, len(rows)

    @property
    def rows(self) -> NDArray[Any]:
        """All of them: a view."""
        return self._data[: self._size]

    def add(self, more: NDArray[Any]) -> None:
        """Rows behind those that there are."""
        size = self._size + len(more)
        if size > len(self._data):
            data = np.empty((2 * size, *self._data.shape[1:]), dtype=self._data.dtype)
            data[: self._size] = self.rows
            self._data = data
        self._data[self._size : size] = more
        self._size = size
