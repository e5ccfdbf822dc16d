"""Error messages name the value that is wrong, and what to do next."""

from scripts.error_messages import STATES, Site, pick, sites


def test_a_message_has_a_value_or_a_remedy() -> None:
    found = list(sites())
    assert len(found) > 700
    bare = [one for one in found if not one.names_value and not one.names_remedy]
    assert [one for one in bare if one.code not in STATES and not _told(one)] == []


def _told(site: Site) -> bool:
    """Whether an unexpected frame or a lost cause leaves nothing to name."""
    return site.message in (
        "received an unexpected snapshot",
        "the batch was aborted",
        "the server's position is behind this replica's",
        "longer than any cursor",
        "the last attempt was interrupted",
    )


def test_the_choice_depends_on_the_seed_only() -> None:
    assert pick(5) == pick(5) != pick(6)
    assert len({one.code for one in pick(5)}) == 20
