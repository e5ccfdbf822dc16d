"""Words of a text, and nicknames, in every script: normalised so that equal words compare equal.

Phones replace characters as people type: full-width letters, curly quotes, zero-width spaces from
a copied text. All of these are normalised before a text is read.
"""

import unicodedata

from apps.rps import limits

# Invisible characters outside the category Cf (format): fillers, variation selectors and joiners,
# from Unicode's property Default_Ignorable_Code_Point.
_UNSEEN = {
    *map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0)),
    *map(chr, range(0x180B, 0x1810)),
    *map(chr, range(0xFE00, 0xFE10)),
    *map(chr, range(0xE0100, 0xE01F0)),
}
# Spacing and non-spacing marks are parts of letters: vowel signs in Hindi, tone marks in Thai.
_MARKS = ("Mn", "Mc")


def words_of(text: str) -> list[str]:
    """The words of a text. Punctuation separates words like white space, but a single question mark
    is a word."""
    found: list[str] = []
    for part in plain(text).split():
        spaced = "".join(" " if _is_punctuation(char) else char for char in part)
        found += spaced.split() or (["?"] if "?" in part else [])
    return found


def letters_of(text: str) -> str:
    """The letters of a text alone, without regard to case: `optout` for "Opt-out!"."""
    return "".join(char for char in plain(text).casefold() if char.isalpha())


def plain(text: str) -> str:
    """A text in Unicode's compatibility form (NFKC), without invisible characters."""
    shown = "".join(char for char in unicodedata.normalize("NFKC", text) if not _is_unseen(char))
    return unicodedata.normalize("NFKC", shown)


def is_nick(word: str) -> bool:
    """Whether a word can be a nickname: letters, marks, numbers and `_` of any script."""
    return (
        0 < len(word) <= limits.NICK_CHARS_MAX
        and unicodedata.category(word[0]) not in _MARKS
        and all(_is_of_nick(char) for char in word)
    )


def fold(nick: str) -> str:
    """The form in which nicknames are unique: independent of case, width and the encoding of
    accents (a compatibility caseless match, as Unicode defines it)."""
    folded = unicodedata.normalize("NFD", nick)
    for _ in range(2):
        folded = unicodedata.normalize("NFKD", folded.casefold())
    return plain(folded)


def _is_of_nick(char: str) -> bool:
    category = unicodedata.category(char)
    return char == "_" or ((category[0] in "LN" or category in _MARKS) and char not in _UNSEEN)


def _is_punctuation(char: str) -> bool:
    return char != "_" and unicodedata.category(char)[0] == "P"


def _is_unseen(char: str) -> bool:
    if char in _UNSEEN:
        return True
    category = unicodedata.category(char)
    return category == "Cf" or (category == "Cc" and not char.isspace())
