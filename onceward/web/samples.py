"""Code samples of the API: each operation with curl, Python and JavaScript.

They are made from the declarations of operations and the example arguments below. The OpenAPI
document has them as `x-codeSamples`, and the page `/docs` shows them.
"""

import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, urlencode

from onceward.api.arguments import (
    Argument,
    argument_name,
    arguments,
    as_struct,
    as_structs,
    in_ms,
)
from onceward.api.operation import Operation

URL = "http://localhost:8080"
"""The server in samples; the page shows its own address instead."""
WIDTH = 80
# The longest command with its URL on one line.
LINE = 97

_ID = "01KA5W6G8Z0V3N9T2QXRBM4YHD"
# The values of arguments: by noun and name, or by name alone.
_VALUES: dict[str, Any] = {
    "queue": "orders",
    "body": {"item": "lamp", "count": 2},
    "token": "1.7",
    "ladder": "chess",
    "name": "printer",
    "user": "ann",
    "names": ["printer"],
    "jobs.id": _ID,
    "locks.id": f"{_ID}02a",
    "matches.id": _ID,
    "plain_timers.id": _ID,
    "sessions.id": _ID,
    "rooms.id": "board.7",
    "tables.id": "corner",
    "timers.id": "reminder-7",
    "endpoints.id": "shop",
    "endpoints.delivery": _ID,
    "callers.id": "key:billing",
    "keys.id": "5f2c8a1e9d3b",
}
# The optional arguments that samples show, and other values of required ones.
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "messages.send": {"key": "order-1042"},
    "messages.send_many": {
        "messages": [
            {"body": {"item": "lamp"}, "key": "order-1042"},
            {"body": {"item": "chair"}, "key": "order-1043"},
        ]
    },
    "jobs.claim": {"max": 10, "lease_s": 30, "wait_s": 20},
    "jobs.complete": {"result": {"total": 12}},
    "jobs.fail": {"reason": "the printer is offline", "retry_after_s": 60},
    "jobs.extend": {"lease_s": 30},
    "jobs.get": {"wait_s": 20},
    "jobs.report": {"progress": 0.4, "text": "page 4 of 10", "chunks": ["Once ", "upon "]},
    "jobs.output": {"after": 12, "wait_s": 20},
    "jobs.emit": {"event": "approval", "value": {"ok": True}, "key": "click-7"},
    "jobs.event_link": {
        "event": "approval",
        "choices": {"Approve": True, "Reject": False},
        "text": "Ship order 7?",
    },
    "jobs.retry": {"key": "retry-7"},
    "jobs.settle": {"step": "pay", "done": True, "result": {"payment": "p-77"}, "key": "settle-7"},
    "jobs.list": {"queue": "orders", "state": "failed"},
    "jobs.count": {"queue": "orders", "state": "failed"},
    "queues.configure": {"attempts_max": 5, "retry_first_s": 2.5},
    "queues.failed": {"limit": 20},
    "queues.redrive": {"reason": "timeout"},
    "locks.acquire": {"lease_s": 30, "wait_s": 5, "request": _ID},
    "locks.renew": {"lease_s": 30},
    "locks.list": {"prefix": "print"},
    "rooms.create": {"id": "board.7", "capacity": 20},
    "rooms.list": {"prefix": "board.", "meta": {"team": "a"}},
    "rooms.update": {"capacity": 50},
    "rooms.history": {"since": 40},
    "rooms.apply": {
        "ops": [{"op": "map.set", "map": "prices", "key": "lamp", "value": 12}],
        "client": _ID,
        "n": 1,
    },
    "rooms.broadcast": {"event": "wave", "value": {"from": "ann"}},
    "rooms.get_map": {"name": "prices"},
    "rooms.put_map": {"name": "prices", "schema": {"type": "number"}},
    "rooms.delete_map": {"name": "prices"},
    "rooms.get_list": {"name": "items"},
    "rooms.put_list": {"name": "items"},
    "rooms.delete_list": {"name": "items"},
    "rooms.get_presence": {"name": "cursor"},
    "rooms.put_presence": {"name": "cursor"},
    "rooms.delete_presence": {"name": "cursor"},
    "tables.create": {"id": "corner", "policy": {"kind": "speed"}},
    "tables.list": {"prefix": "c"},
    "tables.place": {"user": "ann"},
    "tables.join": {"user": "ann"},
    "tables.leave": {"user": "ann"},
    "tables.watch": {"user": "ann"},
    "tables.ready": {"user": "ann"},
    "tables.heartbeat": {"user": "ann"},
    "tables.move": {"user": "ann", "move": {"row": 1, "column": 2}, "key": "move-7"},
    "tables.result": {"winners": ["ann"], "game": 1},
    "tables.leaders": {"limit": 10},
    "timers.create": {"id": "reminder-7", "url": "https://example.com/hook", "delay_s": 3600},
    "timers.list": {"state": "active"},
    "timers.move": {"delay_s": 3600},
    "timers.resend": {"firing": "01HF7YAT007NFS97B5X8K4E97T000"},
    "endpoints.create_portal": {"expires_s": 3600},
    "endpoints.resend_many": {"state": "failed"},
    "timers.update": {"every_s": 60, "overlap": "skip"},
    "endpoints.create": {
        "url": "https://example.com/hook",
        "id": "shop",
        "retry": {"attempts_max": 5, "timeout_s": 10},
    },
    "endpoints.put": {"url": "https://example.com/hook"},
    "endpoints.update": {"disabled": True},
    "endpoints.rotate": {"overlap_s": 86400},
    "plain_timers.create": {"hours": 1, "minutes": 0, "seconds": 0, "url": "https://example.com"},
    "keys.create": {"name": "billing", "scopes": ["send:invoices.*", "lock:billing"]},
    "callers.transfer": {"to": "key:shop"},
    "sessions.revoke_all": {"caller": "key:ann"},
    "session.sign_in": {"token": "YOUR_KEY"},
}
# What is no request with a response.
_LIVE = {
    "rooms.connect": {
        "python": (
            'async with client.live() as live:\n    room = await live.join("board.7", create=True)'
        ),
        "javascript": (
            "const live = client.live();\n"
            'const room = await live.join("board.7", { create: true });'
        ),
    }
}
# The names of languages for the OpenAPI document, and their labels.
_LANGUAGES = {"curl": "Shell", "python": "Python", "javascript": "JavaScript"}
_WORD = re.compile(r"[A-Za-z_]\w*")


def code_samples(operation: Operation[Any]) -> list[dict[str, str]]:
    """The samples of an operation, as in the OpenAPI document."""
    return [
        {"lang": _LANGUAGES[name], "label": name, "source": source}
        for name, source in samples(operation).items()
    ]


def samples(operation: Operation[Any]) -> dict[str, str]:
    """The samples of an operation by language. Clients have methods for calls only."""
    if operation.kind == "stream":
        return _LIVE.get(operation.name, {})
    found = {"curl": _curl(operation)}
    if operation.kind == "call" and operation.noun != "plain_timers":
        found["python"] = _call(operation, python_value)
        found["javascript"] = _call(operation, javascript_value)
    return found


def example(operation: Operation[Any]) -> list[tuple[Argument, Any]]:
    """The arguments of a sample with their values, as the Python client takes them."""
    shown = _ARGUMENTS.get(operation.name, {})
    found = []
    for one in arguments(operation):
        if one.name in shown:
            found.append((one, shown[one.name]))
        elif one.required:
            names = (f"{operation.noun}.{one.name}", one.name)
            found.append((one, next((_VALUES[name] for name in names if name in _VALUES), "VALUE")))
    return found


def _curl(operation: Operation[Any]) -> str:
    given = example(operation)
    path = operation.path
    body: dict[str, Any] = {}
    query: dict[str, Any] = {}
    for one, value in given:
        sent = _sent(one, value)
        if one.place == "path":
            path = path.replace(f"{{{one.name}}}", quote(sent, safe=""))
        else:
            (body if one.place == "body" else query)[one.field] = sent
    target = f"{URL}{path}?{urlencode(query)}" if query else f"{URL}{path}"
    method = "" if operation.method == "GET" else f" -X {operation.method}"
    parts = [f"curl{method}", f'"{target}"']
    if sum(map(len, parts)) < LINE:
        parts = [" ".join(parts)]
    if not (operation.public or operation.signs_in):
        parts.append('-H "Authorization: Bearer $ONCEWARD_KEY"')
    if operation.body is not None:
        parts.append('-H "Content-Type: application/json"')
        text = json.dumps(body)
        parts.append(f"-d '{json.dumps(body, indent=2) if len(text) > WIDTH else text}'")
    return " \\\n  ".join(parts)


def _sent(argument: Argument, value: Any) -> Any:
    """The value of an argument in a request."""
    if argument.json:
        return json.dumps(value, separators=(",", ":"))
    if argument.duration:
        return in_ms(argument.name, value)
    if argument.struct is not None:
        many = isinstance(value, list)
        return (as_structs if many else as_struct)(argument.name, value, argument.struct)
    return value


def _call(operation: Operation[Any], written: Any) -> str:
    """A call of a method of a client."""
    python = written is python_value
    name = str if python else camel
    words, options = [], {}
    for one, value in example(operation):
        if not python and one.struct is not None:
            value = _renamed(value)
        if one.required:
            words.append(value)
        else:
            options[name(one.name)] = value
    method = f"await client.{name(operation.noun)}.{name(operation.verb)}"
    texts = [written(one) for one in words]
    if python:
        texts += [f"{key}={written(value)}" for key, value in options.items()]
    elif options:
        texts.append(written(options))
    line = f"{method}({', '.join(texts)})"
    if len(line) > WIDTH:
        inner = "".join(f"    {text},\n" for text in texts)
        line = f"{method}(\n{inner})"
    return line if python else f"{line};"


def python_value(value: Any) -> str:
    """A value as a literal of Python."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k)}: {python_value(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return _list(map(python_value, value))
    return json.dumps(value) if isinstance(value, str) else repr(value)


def javascript_value(value: Any) -> str:
    """A value as a literal of JavaScript."""
    if isinstance(value, dict):
        members = (f"{_member(k)}: {javascript_value(v)}" for k, v in value.items())
        return f"{{ {', '.join(members)} }}"
    if isinstance(value, list):
        return _list(map(javascript_value, value))
    return json.dumps(value)


def _list(values: Iterable[str]) -> str:
    found = list(values)
    line = f"[{', '.join(found)}]"
    if len(line) <= WIDTH:
        return line
    inner = "".join(f"        {one},\n" for one in found)
    return f"[\n{inner}    ]"


def _member(name: str) -> str:
    return name if _WORD.fullmatch(name) else json.dumps(name)


def _renamed(value: Any) -> Any:
    """The members of a struct as the JavaScript client names them."""
    if isinstance(value, list):
        return [_renamed(one) for one in value]
    return {camel(argument_name(name)): one for name, one in value.items()}


def camel(name: str) -> str:
    """A name in camelCase."""
    return re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name)
