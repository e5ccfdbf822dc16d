"""The hook of mkdocs for the documentation: the order of search results, and edit links."""

from typing import Any

# The rank of pages in search results, by the beginning of their path. Guides come before answers
# that only link to them, and both before the reference and pages for maintainers.
RANKS = {
    "reference/": 0.2,
    "decisions/": 0.2,
    "modules.md": 0.2,
    "internals.md": 0.3,
    "recipes.md": 0.3,
    "records.md": 0.3,
    "tasks.md": 0.3,
    "walks.md": 0.3,
    "writing.md": 0.3,
    "benchmarks.md": 0.3,
    "rooms-protocol.md": 0.5,
    "glossary.md": 0.5,
    "comparison.md": 0.5,
    "faq.md": 0.5,
    "troubleshooting.md": 0.5,
}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> None:
    for beginning, rank in RANKS.items():
        if page.file.src_uri.startswith(beginning):
            page.meta["search"] = {"boost": rank}


def on_page_context(context: dict[str, Any], page: Any, **_: Any) -> None:
    """Generated pages have no edit link."""
    if page.file.src_uri.startswith("reference/"):
        page.edit_url = None
