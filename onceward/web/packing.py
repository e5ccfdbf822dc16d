"""Joins modules of JavaScript into one, without comments and needless white space.

No names change but those that nobody outside can see: of private members, `#name` and by agreement
`_name`, and of variables. All modules of a pack share one scope, so no two may have the same name
at their top; their statements end with semicolons; and no variable is called like something global
that is used.

This understands the JavaScript of our own modules, and not any other. `tests/js/packed.js` proves
of each pack, by a compiler's parser, that it is the same program.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from posixpath import dirname, normpath
from string import ascii_letters, ascii_uppercase

_IMPORT = re.compile(r'^(import|export) \{([^}]*)\} from "([^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:class|function\*?|const) (\w+))", re.MULTILINE)
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)|(?P<text>"(?:[^"\\\n]|\\.)*")|(?P<word>[#\w$]+)|\+\+|--|=>|\?\.|\.\.\.|.""",
    re.DOTALL | re.VERBOSE,
)
_PATTERN = re.compile(r"/(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/\w*")
_DECLARE = {"const", "let", "function", "class"}
_BEFORE_BLOCK = {")", "=>", "else", "try", "catch", "finally"}
_CONDITIONS = {"if", "for", "while", "switch"}
_PRIVATE = re.compile(r"#\w+|_[A-Za-z]\w*")
# Behind these a slash begins a pattern; behind other words, or what closes, it divides.
_WORDS_BEFORE_PATTERN = {"return", "typeof", "case", "of", "in", "yield", "await"}
# Two letters with a large one first: no word of the language is like that.
_NAMES = [*ascii_letters, *(high + low for high in ascii_uppercase for low in ascii_letters)]


def pack(modules: Mapping[str, str], entry: str, outside: Mapping[str, str]) -> str:
    """One module that does what `entry` does, with all that it imports, in few bytes. `modules` are
    texts by path. What comes from a module in `outside` is imported from the address given
    there."""
    return shrink(joined(modules, entry, outside)) + "\n"


def joined(modules: Mapping[str, str], entry: str, outside: Mapping[str, str]) -> str:
    """The same as one text, in which nothing else is changed."""
    texts: list[str] = []
    begun: set[str] = set()
    imported: dict[str, set[str]] = {}
    exported = {found[1] for found in _EXPORT.finditer(modules[entry])}

    def take(path: str) -> None:
        begun.add(path)
        for kind, listed, source in _IMPORT.findall(modules[path]):
            names = {name for part in listed.split(",") if (name := part.strip())}
            target = normpath(f"{dirname(path)}/{source}" if dirname(path) else source)
            if kind == "export":
                assert path == entry, "only the entry passes on what others export"
                exported.update(names)
            if target in outside or not source.startswith("."):
                imported.setdefault(outside.get(target, source), set()).update(names)
            elif target not in begun:
                take(target)
        texts.append(_EXPORT.sub("", _IMPORT.sub("", modules[path])))

    take(entry)
    heads = [
        f'import {{{",".join(sorted(names))}}} from "{source}";'
        for source, names in sorted(imported.items())
    ]
    tail = f"export {{{','.join(sorted(exported))}}};"
    return "\n".join([*heads, *texts, tail])


def shrink(text: str) -> str:
    """The same program in fewer bytes."""
    return _shrunk(text, _shorter(text))


def _shorter(text: str) -> dict[str, str]:
    """Shorter names for private members and for variables. A word gets the same one everywhere, and
    no two words that are in one function, or at the top, get the same: so whatever a word means, it
    means the same as before."""
    pieces = _Pieces(_inside(text))
    counts = Counter(pieces.all)
    found = {word for word in counts if _PRIVATE.fullmatch(word)}
    for place, word in enumerate(pieces.all):
        if re.fullmatch(r"[A-Za-z]\w*", word) and pieces.is_declared(place):
            found.add(word)
    where = pieces.where()
    taken: dict[tuple[str, int], set[str]] = {}
    names: dict[str, str] = {}
    for word in sorted(found - pieces.shared(), key=lambda word: (-counts[word], word)):
        kind = word[0] if word[0] in "#_" else ""
        # Members by agreement are seen from anywhere.
        units = {0} if kind == "_" else {unit[kind == "#"] for unit in where[word]}
        used = {name for unit in units for name in taken.get((kind, unit), ())}
        short = next(name for name in _NAMES if name not in used and name not in counts)
        for unit in units:
            taken.setdefault((kind, unit), set()).add(short)
        names[word] = f"#{short}" if kind == "#" else short
    return names


class _Pieces:
    """The pieces of a program, and which brackets they stand in."""

    def __init__(self, pieces: Iterable[str]) -> None:
        self.all = [";", *pieces, ";"]
        """With one more at each end, so that there is something before and after each."""
        self._opens: list[int] = []
        """For each piece, where the bracket is that it stands in; 0 if there is none."""
        self._closes: dict[int, int] = {}
        self._began: dict[int, int] = {}
        inside = [0]
        for place, piece in enumerate(self.all):
            if piece in ("}", "]", ")"):
                self._began[place] = inside[-1]
                self._closes[inside.pop()] = place
            self._opens.append(inside[-1])
            if piece in ("{", "[", "("):
                inside.append(place)

    def is_declared(self, place: int) -> bool:
        """Whether a word is declared here: by a statement, or as a parameter."""
        before, opens = self.all[place - 1], self._opens[place]
        if before in _DECLARE:
            return True
        if self.all[opens] == "[":
            return before in ("[", ",") and self.all[opens - 1] in _DECLARE
        return self.all[opens] == "(" and before in ("(", ",", "...") and self._defines(opens)

    def shared(self) -> set[str]:
        """The words that are imported or exported."""
        return {
            word
            for word, opens in zip(self.all, self._opens, strict=True)
            if self.all[opens - 1] in ("import", "export")
        }

    def where(self) -> dict[str, set[tuple[int, int]]]:
        """For each word the functions that it is in: by number, and with the class or function at
        the top that they are in. What is declared at the top is in number 0, too."""
        found: dict[str, set[tuple[int, int]]] = {}
        outer = inner = 1
        for place, piece in enumerate(self.all):
            opens = self._opens[place]
            at_top = not opens
            in_class = self._is_class(opens) and not self._opens[opens]
            found.setdefault(piece, set()).add((inner, outer))
            if self.is_declared(place) and (at_top or self._unpacks_at_top(opens)):
                found[piece].add((0, 0))
            if (at_top or in_class) and (piece == ";" or (piece == "}" and self._ends(place))):
                inner += 1
                outer += at_top
        return found

    def named(self, place: int, short: str) -> str:
        """What to write for a word that has a shorter name: that, where it is a variable."""
        before, word, after = self.all[place - 1 : place + 2]
        opens = self._opens[place]
        if before in (".", "?."):
            return word
        if self._is_class(opens):
            if before in ("{", "}", ";"):
                return word
        elif self.all[opens] == "{" and self.all[opens - 1] not in _BEFORE_BLOCK:
            if before in ("{", ",") and after in (",", "}", "="):
                return f"{word}:{short}"
            if before in ("{", ",") and after == ":":
                return word
        defined = after == "(" and before != "function" and self._defines(place + 1)
        return word if defined else short

    def _unpacks_at_top(self, opens: int) -> bool:
        """Whether a bracket is what a statement at the top takes apart."""
        return self.all[opens - 1] in _DECLARE and not self._opens[opens]

    def _is_class(self, opens: int) -> bool:
        return self.all[opens] == "{" and "class" in self.all[max(opens - 4, 0) : opens]

    def _ends(self, closes: int) -> bool:
        """Whether a brace closes a function or a class."""
        opens = self._began[closes]
        return self.all[opens - 1] == ")" or self._is_class(opens)

    def _defines(self, opens: int) -> bool:
        """Whether a bracket has the parameters of a function."""
        after = self.all[self._closes[opens] + 1]
        return after == "=>" or (after == "{" and self.all[opens - 1] not in _CONDITIONS)


def _inside(text: str) -> Iterator[str]:
    """All pieces, also those in the holes of templates."""
    for piece in _tokens(text, {}):
        yield piece
        if piece[0] == "`":
            for start, end in _holes(piece):
                yield "("
                yield from _inside(piece[start:end])
                yield ")"


def _shrunk(text: str, names: dict[str, str]) -> str:
    source = _Pieces(_tokens(text, names))
    pieces: list[str] = []
    for place, piece in enumerate(source.all[1:-1], 1):
        if piece in names:
            private = _PRIVATE.fullmatch(piece)
            piece = names[piece] if private else source.named(place, names[piece])
        elif piece in "}])" and pieces[-1] in (",;" if piece == "}" else ","):
            pieces.pop()  # nothing follows that it would stand between
        elif piece == "=>" and pieces[-3] == "(" and re.match(r"\w", pieces[-2]):
            pieces[-3:] = [pieces[-2]]
        pieces.append("let" if piece == "const" else piece)
    return "".join(pieces[:1] + [_gap(*pair) + pair[1] for pair in pairwise(pieces)])


def _gap(before: str, after: str) -> str:
    """What must stand between two pieces: something between words, and between signs that would
    be another sign together."""
    if re.match(r"[\w$#]", before[-1]) and re.match(r"[\w$#]", after[0]):
        return " "
    return " " if before[-1] == after[0] and after[0] in "+-" else ""


def _tokens(text: str, names: dict[str, str]) -> Iterator[str]:
    place, before = 0, ";"
    while place < len(text):
        found = _TOKEN.match(text, place)
        assert found is not None
        piece, place = found[0], found.end()
        if found["space"]:
            continue
        if piece == "`":
            place = _template_end(text, place)
            piece = _template(text[found.start() : place], names)
        elif piece == "/" and (
            before in _WORDS_BEFORE_PATTERN or not re.search(r"[\w$)\]`\"]$", before)
        ):
            pattern = _PATTERN.match(text, found.start())
            assert pattern is not None, text[found.start() : place + 40]
            piece, place = pattern[0], pattern.end()
        elif found["word"] and piece[0].isdecimal():
            piece = piece.replace("_", "")
        yield piece
        before = piece


def _template_end(text: str, place: int) -> int:
    """Where a template ends whose inside begins at a place."""
    while text[place] != "`":
        if text[place] == "\\":
            place += 1
        elif text.startswith("${", place):
            place = _hole_end(text, place + 2)
        place += 1
    return place + 1


def _hole_end(text: str, place: int) -> int:
    """Where the brace is that closes a hole in a template."""
    depth = 0
    while depth or text[place] != "}":
        found = _TOKEN.match(text, place)
        assert found is not None
        place = found.end()
        if found[0] == "`":
            place = _template_end(text, place)
        depth += {"{": 1, "}": -1}.get(found[0], 0)
    return place


def _holes(text: str) -> Iterator[tuple[int, int]]:
    """Where the insides of a template's holes begin and end."""
    place = 0
    while (hole := text.find("${", place)) >= 0:
        place = _hole_end(text, hole + 2)
        yield hole + 2, place


def _template(text: str, names: dict[str, str]) -> str:
    """A template whose holes have fewer bytes, and nothing else."""
    made, place = "", 0
    for start, end in _holes(text):
        made += text[place:start] + _shrunk(text[start:end], names)
        place = end
    return made + text[place:]
