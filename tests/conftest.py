import os

import pytest
from hypothesis import settings

# Two busy cores make any single example slow now and then; that is no finding.
settings.register_profile("onceward", deadline=None, print_blob=True)
settings.load_profile("onceward")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Coverage is earned by tests that assert on a behaviour, not by the simulator passing by."""
    for item in items:
        if item.get_closest_marker("simulate"):
            item.add_marker(pytest.mark.no_cover)


@pytest.fixture(scope="session")
def soak() -> bool:
    """Whether this is a long run (`make soak-…`), where counts are the large ones."""
    return os.environ.get("ONCEWARD_SOAK") == "1"
