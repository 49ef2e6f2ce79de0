"""Programs of the machine that a test needs beside the servers."""

import os
import shutil

import pytest

from tests.conftest import REQUIRE_VARIABLE


def require_program(name: str, what_for: str) -> None:
    """Leave the test out where ``name`` is not installed, or fail it where servers are required."""
    if shutil.which(name) is None:
        missing = f"{name}, {what_for}"
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1, but there is no {missing}", pytrace=False)
        pytest.skip(f"needs {missing}")
