"""The house rules that no linter knows, as functions on source text.

Each rule takes a tree, {path: text} with paths as in the repository, and yields
one line per violation. `tests/test_tidy.py` runs them on the real tree, and on
planted violations to see that they bite.
"""

import ast
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePosixPath

from onceward.capabilities import CAPABILITIES

Tree = dict[str, str]

# The folders whose modules are pure unless a row names them: a new capability is one of them.
_OTHERS = ("store", "maintenance", "schedule", "web", "sql")
_PURE = " ".join(one.folder for one in CAPABILITIES if one.folder not in _OTHERS)
# In every capability, these two run or refer to processes.
_IN_ALL = " ".join(
    f"{one.folder}.register {one.folder}.server" for one in CAPABILITIES if one.folder != "web"
)

# Top to bottom. A module imports its own unit and the rows below, nothing beside or above it.
# A name covers the module or package and all that is in it, a longer name wins over a shorter
# one, and the names of a row that begins with "=" are one unit together.
# Of a capability, the modules that are not in the row of processes are pure: records, rules, and
# functions of a transaction.
LAYERS = (
    "apps",  # the only row that is not in the package
    "integrations",  # with frameworks, by the public surface alone (tests/test_surface.py)
    "onceward __main__",  # the front door: the version, and names for users of the package
    "cli",
    "web",
    "sync",
    "client",
    "= app running",
    f"= node observe maintenance {_IN_ALL}"
    " work.attempt work.declarations work.depths work.effects work.failures work.fairness"
    " work.handlers"
    " work.intake work.job work.job_fields work.lease work.links work.outcome work.outside"
    " work.quarantine"
    " work.queues"
    " work.results work.sync_job work.unreadable work.worker"
    " schedule.claim_queue schedule.claiming schedule.claims"
    " schedule.dispatcher schedule.due_entries schedule.local_workers schedule.placement"
    " schedule.ready_entries schedule.settings_cache schedule.slot schedule.takeover"
    " schedule.wakeup"
    " locks.held locks.renewal"
    " webhooks.delivery webhooks.receivers webhooks.host_waiters"
    " rooms.fanout rooms.hub rooms.live rooms.live_presence rooms.loaded"
    " rooms.members rooms.owners rooms.presence rooms.relay rooms.session rooms.wire"
    " tables.live_view tables.operations tables.presence tables.referee"
    " tables.runtime"
    " sql",  # the processes of all capabilities
    f"{_PURE} sql.records",
    "webhooks.endpoints webhooks.suspensions",
    "schedule",  # the part that the others may use
    "recurrence",
    "= parts",
    "store",
    "engine",  # opens an engine by its URL
    "engine.memory engine.sqlite* engine.postgres* engine.dynamodb*",
    "engine.memtable engine.invariants",
    "engine.base",  # the contract
    "= webhooks.http webhooks.answers webhooks.concurrency webhooks.hosts webhooks.retries"
    " webhooks.signing",  # calls to endpoints: knows nothing of what is stored
    "tokens",  # for the back ends of users, which need nothing else of the package
    "api",  # operations as data, shared with clients
    "conversion job_options output_writer",
    "alarms callers functions json_values quantities repeats watchdog",
    "server_key",
    "threads tracing",
    "clock file_descriptors ids job_context keys meters reasons redaction strict_json",
    "forks",
    "contexts errors lazy limits capabilities metric_table",
    "event_loop extras",
)
# Stands beside the layers: imports what is below web, and nothing else imports it.
BESIDE, BESIDE_BELOW = "testing", "web"
BESIDE_USED_BY = "cli.simulate"
# Does not count as an import of the front door.
VERSION = "__version__"

# Which modules may import a driver.
DRIVERS = {
    "apsw": "engine.sqlite* testing",
    "sqlite3": "engine.sqlite* sql.databases sql.sources testing",
    "asyncpg": "engine.postgres* sql.databases sql.sources",
    "psycopg": "engine.postgres*",
    "boto3": "engine.dynamodb*",
    "botocore": "engine.dynamodb*",
    "aioboto3": "engine.dynamodb*",
    "aiobotocore": "engine.dynamodb*",
}

# What reads the time or makes randomness, and which modules may. The bare module counts too:
# passing it on would hide what is read from it.
TIME_IN = "clock testing"
TIME = (
    *("time", "time.time*", "time.monotonic*", "time.perf_counter*", "time.process_time*"),
    *("time.thread_time*", "time.clock_*", "time.localtime", "time.gmtime", "time.ctime"),
    *("time.asctime", "time.strftime", "datetime.datetime.now", "datetime.datetime.utcnow"),
    *("datetime.datetime.today", "datetime.date.today", "*loop.time"),
)
RANDOM_IN = "ids testing"
RANDOM = (
    *("random", "random.*", "secrets", "secrets.*", "uuid", "uuid.*"),
    *("os.urandom", "os.getrandom"),
)

# Groups of calls that one client has, each in a module of its own.
ONE_CHILD_IN = "client"

LINES_MAX = 700
# Our packages: `benchmarks` stands in no row, so nothing else imports it.
OURS = ("onceward", "apps", "benchmarks")
SOURCE_SUFFIXES = {".py", ".js", ".ts", ".css", ".html", ".sql"}
# Tests of the repository itself, its examples and its pages.
NO_MIRROR = {"chaos", "docs", "examples", "typing"}


def read_tree(root: Path) -> Tree:
    """The source files of the package, of the applications and benchmarks, and of their tests."""
    return {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for folder in ("onceward", "apps", "benchmarks", "tests")
        for path in sorted((root / folder).rglob("*"))
        if path.is_file() and path.suffix in SOURCE_SUFFIXES
    }


def imports_point_down(tree: Tree) -> Iterator[str]:
    for path, name in _modules(tree):
        if _place(name) is None:
            yield f"{path}: {name} is in no layer: add it to the table in tests/tidy.py"
            continue
        for line, target in _imports(path, tree[path]):
            package = target.partition(".")[0]
            inner = target.removeprefix("onceward.")
            if package in OURS and not _may_import(name, inner):
                yield f"{path}:{line}: {name} may not import {target}"


def drivers_stay_with_their_engine(tree: Tree) -> Iterator[str]:
    for path, name in _modules(tree):
        for line, target in _imports(path, tree[path]):
            allowed = DRIVERS.get(target.partition(".")[0])
            if allowed and not covered(name, allowed):
                yield f"{path}:{line}: {target} is for {allowed} only"


def time_comes_from_clock(tree: Tree) -> Iterator[str]:
    yield from _used_elsewhere(tree, TIME, TIME_IN, "reads the time: use clock")


def randomness_comes_from_ids(tree: Tree) -> Iterator[str]:
    yield from _used_elsewhere(tree, RANDOM, RANDOM_IN, "is random: use ids")


def files_are_short(tree: Tree) -> Iterator[str]:
    for path, text in tree.items():
        lines = len(text.splitlines())
        if lines > LINES_MAX:
            yield f"{path}: {lines} lines, the most is {LINES_MAX}: make it two"


def limits_are_used(tree: Tree) -> Iterator[str]:
    """A limit is used by one of our packages, or by another limit; tests do not count. Its name may
    stand in a text."""
    used: set[str] = set()
    limits: list[tuple[str, int, str]] = []
    for path, text in tree.items():
        if not path.endswith(".py") or path.startswith("tests/"):
            continue
        root = ast.parse(text, path)
        used |= {name.rpartition(".")[2] for _, name in _used(path, text)}
        for node in ast.walk(root):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                used.add(node.value)
            elif path.startswith("onceward/limits/") and isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Load):
                    used.add(node.id)
                else:
                    limits.append((path, node.lineno, node.id))
    for path, line, name in limits:
        if name not in used:
            yield f"{path}:{line}: nothing uses {name}"


def tests_do_not_sleep(tree: Tree) -> Iterator[str]:
    for path, text in tree.items():
        if not fnmatchcase(path, "tests/*.py"):
            continue
        root = ast.parse(text, path)
        # asyncio.sleep(0) waits for no time: it lets the others have their turn.
        turns = {
            node.func
            for node in ast.walk(root)
            if isinstance(node, ast.Call)
            and [arg.value if isinstance(arg, ast.Constant) else arg for arg in node.args] == [0]
        }
        for node, used in _uses(root):
            if used == "time.sleep" or (used == "asyncio.sleep" and node not in turns):
                yield f"{path}:{node.lineno}: {used}: wait for an event, or use the virtual clock"


def tests_mirror_the_folders(tree: Tree) -> Iterator[str]:
    """A folder of tests has the name of a folder of the package, of `apps` or of `benchmarks`, or
    is named in `NO_MIRROR`."""
    folders = {str(PurePosixPath(path).parent) for path in tree if path.endswith(".py")}
    for path in tree:
        folder = PurePosixPath(path).parent
        if not fnmatchcase(path, "tests/*/test_*.py") or folder.parts[1] in NO_MIRROR:
            continue
        top = () if folder.parts[1] in OURS else ("onceward",)
        mirrored = PurePosixPath(*top, *folder.parts[1:])
        if str(mirrored) not in folders:
            yield f"{path}: tests no folder: there is no {mirrored}"


def base_classes_have_children(tree: Tree) -> Iterator[str]:
    """A class that is used only as the base of one other class belongs into that class. Protocols
    and exceptions are meant to be extended by others."""
    classes, used = _classes(tree), _used_names(tree)
    children: dict[str, set[tuple[str, str]]] = {}
    for path, node in classes:
        for base in _bases(node):
            children.setdefault(base, set()).add((path, node.name))
    for path, node in classes:
        found = children.get(node.name, ())
        if len(found) != 1 or node.name in used or covered(_module_name(path), ONE_CHILD_IN):
            continue
        if not {"Protocol", "Exception", "BaseException"} & set(_bases(node)):
            [(_, child)] = found
            yield f"{path}:{node.lineno}: {node.name} is the base of {child} alone: merge them"


def class_names_are_unique_in_a_folder(tree: Tree) -> Iterator[str]:
    known: dict[tuple[PurePosixPath, str], str] = {}
    for path, node in _classes(tree):
        first = known.setdefault((PurePosixPath(path).parent, node.name), path)
        if first != path:
            yield f"{path}:{node.lineno}: {first} has a class {node.name} as well: rename one"


def _classes(tree: Tree) -> list[tuple[str, ast.ClassDef]]:
    """The classes of the package, with the paths of their modules."""
    return [
        (path, node)
        for path, _ in _modules(tree)
        if path.startswith("onceward/")
        for node in ast.walk(ast.parse(tree[path], path))
        if isinstance(node, ast.ClassDef)
    ]


def _bases(node: ast.ClassDef) -> list[str]:
    """The last words of the names of its bases."""
    return [name for base in node.bases if (name := _last_word(base))]


def _last_word(node: ast.expr) -> str | None:
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _used_names(tree: Tree) -> set[str]:
    """The names that modules of the package use otherwise than to import or to extend them."""
    used: set[str] = set()
    for path, _ in _modules(tree):
        nodes = list(ast.walk(ast.parse(tree[path], path)))
        bases = [base for node in nodes if isinstance(node, ast.ClassDef) for base in node.bases]
        extended = {base.value if isinstance(base, ast.Subscript) else base for base in bases}
        for node in nodes:
            if isinstance(node, ast.Name | ast.Attribute) and node not in extended:
                used.add(node.id if isinstance(node, ast.Name) else node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                used.add(node.value)  # a name in quotes, as in an annotation
    return used


def _module_name(path: str) -> str:
    return dict(_modules({path: ""}))[path]


def _modules(tree: Tree) -> Iterator[tuple[str, str]]:
    """(path, module name), without "onceward." in front; the package itself is "onceward"."""
    for path in tree:
        if fnmatchcase(path, "onceward/*.py") or fnmatchcase(path, "apps/*.py"):
            name = path.removesuffix(".py").removesuffix("/__init__")
            yield path, name.removeprefix("onceward/").replace("/", ".")


def covered(name: str, patterns: str) -> bool:
    return any(f"{name}.".startswith(f"{p}.") or fnmatchcase(name, p) for p in patterns.split())


def _place(name: str) -> tuple[int, str] | None:
    """The row of a module, counted from the top, and its unit; None if the table lacks it."""
    if covered(name, BESIDE):
        return -1, BESIDE
    rows = [(p, row) for row, names in enumerate(LAYERS) for p in names.split() if p != "="]
    fitting = [(p, row) for p, row in rows if covered(name, p)]
    if not fitting:
        return None
    pattern, row = max(fitting, key=lambda fit: len(fit[0]))
    return row, LAYERS[row] if LAYERS[row].startswith("=") else pattern


def _may_import(name: str, target: str) -> bool:
    here, there = _place(name), _place(target)
    if target == VERSION:
        return True
    if there is None and "." not in target:
        there = _place("onceward")  # a name of the front door, as in `from onceward import App`
    if here is None or there is None:
        return False
    if here[1] == there[1]:
        return True
    if here[1] == BESIDE:
        below = _place(BESIDE_BELOW)
        return below is not None and there[0] > below[0]
    if there[1] == BESIDE:
        return name == BESIDE_USED_BY
    return there[0] > here[0]


@cache
def _imports(path: str, text: str) -> list[tuple[int, str]]:
    """(line, full dotted name) of all that is imported, also in functions and for typing only."""
    return list(_each_import(path, text))


def _each_import(path: str, text: str) -> Iterator[tuple[int, str]]:
    package = PurePosixPath(path).parts[:-1]
    for node in ast.walk(ast.parse(text, path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = package[: len(package) - node.level + 1] if node.level else ()
            source += (node.module,) if node.module else ()
            yield from ((node.lineno, ".".join((*source, alias.name))) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)]
            yield from ((node.lineno, str(name)) for name in names)


def _used_elsewhere(tree: Tree, patterns: Iterable[str], allowed: str, why: str) -> Iterator[str]:
    for path, name in _modules(tree):
        if covered(name, allowed):
            continue
        for line, used in _used(path, tree[path]):
            if any(fnmatchcase(used, pattern) for pattern in patterns):
                yield f"{path}:{line}: {used} {why}"


@cache
def _used(path: str, text: str) -> list[tuple[int, str]]:
    """(line, full dotted name) of all uses of imported names."""
    return [(node.lineno, used) for node, used in _uses(ast.parse(text, path))]


def _uses(root: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """(node, full dotted name) where an imported name is used, under whatever alias."""
    aliases: dict[str, str] = {}
    for node in ast.walk(root):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                aliases[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def visit(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
        if isinstance(node, ast.Name | ast.Attribute) and (used := _dotted(node, aliases)):
            yield node, used
            if isinstance(node, ast.Attribute):
                node = node.value
                while isinstance(node, ast.Attribute):
                    node = node.value
        if not isinstance(node, ast.Name):
            for child in ast.iter_child_nodes(node):
                yield from visit(child)

    yield from visit(root)


def _dotted(node: ast.expr, aliases: dict[str, str]) -> str | None:
    """The full name of an expression; any event loop, however it was come by, is "loop"."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id) or ("loop" if node.id.endswith("loop") else None)
    if isinstance(node, ast.Attribute):
        if base := _dotted(node.value, aliases):
            return f"{base}.{node.attr}"
        return "loop" if node.attr.endswith("loop") else None
    if isinstance(node, ast.Call):
        made = _dotted(node.func, aliases)
        return "loop" if made and made.endswith("_loop") else None
    return None
