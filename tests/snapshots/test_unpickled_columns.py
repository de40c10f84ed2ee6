"""Values that were unpickled: what Arrow would make alike stays as it is, beside its text."""

import pickle
from datetime import UTC, datetime

import pytest
from strom.snapshots.columns import unpickled


@pytest.mark.parametrize(
    "values",
    [
        [{1, 2}, [1, 1.5]],
        [[1], [1.5]],
        [{"n": 1}, {"n": 1.5}],
        [datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)],
        [1, 1.5],
        [1.0, 1],
        [True, 1],
    ],
)
def test_values_of_unlike_types_stay_bytes_beside_their_text(values):
    pickles = [pickle.dumps(value) for value in values]
    columns = unpickled("value", pickles, unpickle=True)
    assert list(columns) == ["value", "value_text"]
    assert columns["value"].to_pylist() == pickles
    assert columns["value_text"].to_pylist() == [repr(value) for value in values]
