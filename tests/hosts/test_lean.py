"""pyarrow without pandas until pandas is wanted."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pandas")

START = """
import sys
from strom.engine.hosts.lean import postpone_pandas
postpone_pandas()
postpone_pandas()
import numpy as np, pyarrow as pa
pa.array(np.arange(3)); pa.array([1, None], pa.int64()); pa.table({"a": np.arange(2)}).to_pylist()
assert "pandas" not in sys.modules
"""


@pytest.mark.parametrize(
    "program",
    [
        "import pandas as pd\nassert pa.array(pd.Series([1.0, float('nan')])).null_count == 1",
        "frame = pa.table({'a': [1, 2]}).to_pandas()\nassert frame['a'].sum() == 3",
        "import pandas as pd\nassert pa.Table.from_pandas(pd.DataFrame({'a': [1]})).num_rows == 1",
        "import pandas as pd\nassert pa.array(pd.Categorical(['a', 'b'])).type.index_type",
        "import polars as pl\nassert pl.DataFrame({'a': [1]}).to_pandas().shape == (1, 1)",
        "assert len([f for f in sys.meta_path if type(f).__name__ == '_Pandas']) == 1",
    ],
)
def test_pandas_comes_when_it_is_wanted(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", START + program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_pandas_that_is_there_stays_there() -> None:
    program = "import pandas\n" + START.replace('assert "pandas" not in sys.modules', "")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
