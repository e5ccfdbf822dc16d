"""What a room says in one turn reaches each reader once, and its authors differently."""

from hypothesis import given
from hypothesis import strategies as st

from onceward.rooms.fanout import News


class Page:
    def __init__(self) -> None:
        self.got: list[bytes] = []

    def put(self, frames: bytes) -> None:
        self.got.append(frames)

    put_last = put


SAYINGS = st.lists(
    st.tuples(st.binary(max_size=5), st.integers(0, 2), st.binary())
    | st.tuples(st.binary(min_size=1, max_size=5), st.none(), st.binary())
)


@given(SAYINGS, st.integers(1, 5))
def test_everyone_gets_all_and_authors_something_else(
    sayings: list[tuple[bytes, int | None, bytes]], readers: int
) -> None:
    pages = [Page() for _ in range(max(readers, 3))]
    news: News[Page] = News()
    for frame, author, instead in sayings:
        news.add(frame, None if author is None else pages[author], instead)
    news.tell(pages)
    for number, page in enumerate(pages):
        expected = b"".join(
            instead if author == number else frame for frame, author, instead in sayings
        )
        assert b"".join(page.got) == expected
        assert len(page.got) == bool(expected)
    news.tell(pages)
    assert all(len(page.got) <= 1 for page in pages)


def test_readers_share_one_buffer() -> None:
    pages = [Page(), Page(), Page()]
    news: News[Page] = News()
    news.add(b"one", pages[0], b"ack")
    news.add(b"two")
    news.tell(pages)
    assert pages[1].got[0] is pages[2].got[0]
    assert pages[0].got == [b"acktwo"]


def test_an_author_who_has_left_is_no_reader() -> None:
    gone, there = Page(), Page()
    news: News[Page] = News()
    news.add(b"one", gone, b"ack")
    news.tell([there])
    assert (gone.got, there.got) == ([], [b"one"])
