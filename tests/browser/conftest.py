"""One browser for all pages, and the choice of a test's reader."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chromium import Chromium


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    one = Chromium(tmp_path_factory.mktemp("profile"))
    yield one
    one.close()
