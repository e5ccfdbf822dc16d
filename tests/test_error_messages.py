"""Error messages name the value that is wrong, and what to do next."""

from scripts.error_messages import STATES, Site, pick, sites

# Messages about a situation, in which no value is wrong. They name the remedy.
SITUATIONS = (
    *("no application to run", "use --scope", "--key-file signs", "no key to sign with"),
    *("a database in memory", "this database does not take SQL", "invalid database URL"),
    *("a statement on the SQL connection failed", "the transaction of the SQL connection was"),
    *("there is no current Flask", "there is no database", "there is no server in"),
    *("Onceward is already installed", "Onceward is not installed", "are both set"),
    *("the given server key is empty", "this server has no tables", "`hello` may be sent"),
    *("the token belongs to another user", "another event loop", "in a transaction"),
    *("SQLite has no NOTIFY", "the database has no tables", "this transaction has ended"),
    *("nested more than", "was entered before", "a transaction must be a plain function"),
    *("the first entry of a log must", "a newer game is running", "the application itself"),
    *("keep_place needs", "sign in with either", "all are missing", "does not support WebSocket"),
    *("the URL of a connection has", "contradict each other", "scopes are missing"),
    *("there are already", "HTTP/1.0 does not", "cannot upgrade the protocol"),
    *("this database takes no SQL", "a timer needs exactly one of", "that no longer repeats"),
    *("a debounce_key or a batch_key", "a value or choices", "a GET request has no body"),
    *("an outbox cannot have", "the handler cancelled itself"),
    *("a header contains", "job.tx was used inside", "a SQL step with a lambda"),
)
# Reasons that become part of another message, which names the remedy.
PARTS = ("longer than any cursor", "released by another client", "before it could be renewed")


def test_a_message_names_the_value_and_the_remedy() -> None:
    found = sites()
    assert len(found) > 700
    assert [one for one in found if not (one.names_remedy or _has(one, PARTS))] == []
    assert [one for one in found if not (one.names_value or _needs_no_value(one))] == []


def test_each_exception_is_needed() -> None:
    bare = [one for one in sites() if not (one.names_value and one.names_remedy)]
    assert [
        text for text in SITUATIONS + PARTS if not any(_has(one, (text,)) for one in bare)
    ] == []


def test_a_limit_is_not_the_value_and_a_rule_is_not_the_remedy() -> None:
    assert not Site("", "", "a list has at most {limits.LIST_MAX} items").names_value
    assert Site("", "", "a list must have at most 9 items, not {len(found)}").names_value
    assert not Site("", "", "{name} has no addresses").names_remedy
    assert Site("", "", "{name} has no addresses; check its DNS records").names_remedy


def _needs_no_value(site: Site) -> bool:
    return site.code in STATES or _has(site, SITUATIONS + PARTS)


def _has(site: Site, texts: tuple[str, ...]) -> bool:
    return any(text in site.message for text in texts)


def test_the_choice_depends_on_the_seed_only() -> None:
    assert pick(5) == pick(5) != pick(6)
    assert len({one.code for one in pick(5)}) == 20
