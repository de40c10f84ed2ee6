"""Some hundred random requests; `make fuzz-rest` makes many more."""

from __future__ import annotations

import os

from rest_fuzz import fuzz


def test_every_answer_is_one_that_the_description_allows() -> None:
    cases, seed = int(os.environ.get("STROM_REST_CASES", "10")), 7
    assert fuzz(cases, seed) > 200
