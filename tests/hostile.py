"""Names as an attacker would choose them, to get more than the one resource that they name."""

NAMES = (
    *("x all", "all", "*", "?", "**", "a[b]", "[!x]*", "a*", "a?", "]", "[", "[]", "x *"),
    *("x write:*", "x,all", "x;all", "x\nall", "x\tall", "x\r\nall:", "x\x00all", " ", " all "),
    *('"', "'", '","all', '"}, {"type":"onceward","actions":["all"]}, {"', "\\", '\\"', "\\u002a"),
    *('{"action":"all"}', '["all"]', "{sub}", "{}", "%s", "${x}", "#", "x#all", "#token=all"),
    *("read:*", "write:x", "a/../b", "ü", "日本語", "🦉", "\u202eall", "a\u200ball", "<b>"),
    *("user:bob", "key:billing", "app:x", "user@partner:bob", "\uff41\uff4c\uff4c"),
)
OTHERS = ("x", "a", "ab", "b", "secret", "other room", "board.7", "all", "admin", "")
"""Names of resources that nobody has granted."""
