"""Samples of the API: all languages of an operation make the same request, and it is valid."""

import ast
import json
import re
import shlex
import subprocess
import textwrap
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import pytest
from aiohttp import web

from onceward.api import OPERATIONS
from onceward.client import Client, Live
from onceward.errors import OncewardError
from onceward.web.samples import URL, samples
from tests.client.served import Served
from tests.needs import need_program
from tests.schedule.cluster import virtual
from tests.web.asgi import serving
from tests.web.test_scripts_operations import ROOT

SAMPLES = {name: samples(operation) for name, operation in OPERATIONS.items()}
CALLS = [name for name, found in SAMPLES.items() if {"curl", "python"} <= found.keys()]
# A request: method, path, query and body.
Request = tuple[str, str, list[tuple[str, str]], Any]


def request(method: str, url: str, body: str | None) -> Request:
    parts = urlsplit(url)
    return method, unquote(parts.path), parse_qsl(parts.query), json.loads(body) if body else {}


def of_curl(sample: str) -> Request:
    """The request of a sample for the command line."""
    assert "\n\n" not in sample
    program, *words = shlex.split(sample.replace("\\\n", " "))
    assert program == "curl"
    method, url, body, headers = "GET", "", None, []
    while words:
        word = words.pop(0)
        if word == "-X":
            method = words.pop(0)
        elif word == "-H":
            headers.append(words.pop(0))
        elif word == "-d":
            body = words.pop(0)
        else:
            assert not word.startswith("-"), word
            assert not url
            url = word
    assert url.startswith(URL)
    assert (body is not None) == ("Content-Type: application/json" in headers)
    return request(method, url.removeprefix(URL), body)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_has_its_samples(name: str) -> None:
    operation = OPERATIONS[name]
    found = set(SAMPLES[name])
    if operation.kind == "stream":
        assert found == {"python", "javascript"}
    elif operation.kind == "page" or operation.noun == "plain_timers":
        assert found == {"curl"}
    else:
        assert found == {"curl", "python", "javascript"}


async def test_the_python_samples_make_the_requests_of_curl() -> None:
    got: list[Request] = []

    async def answer(asked: web.Request) -> web.Response:
        got.append(request(asked.method, asked.path_qs, await asked.text()))
        problem = {"code": "bad_request", "detail": "seen", "status": 422, "title": "Seen"}
        return web.json_response(problem, status=422, content_type="application/problem+json")

    server = web.Application()
    server.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(server)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        async with Client(f"http://127.0.0.1:{port}") as client:
            for name in CALLS:
                function = (
                    f"async def sample(client):\n{textwrap.indent(SAMPLES[name]['python'], '    ')}"
                )
                names: dict[str, Any] = {}
                exec(compile(function, name, "exec"), names)
                with pytest.raises(OncewardError, match="seen"):
                    await names["sample"](client)
    finally:
        await runner.cleanup()
    assert len(got) == len(CALLS)
    for name, made in zip(CALLS, got, strict=True):
        assert meaning(name, made) == meaning(name, of_curl(SAMPLES[name]["curl"])), name


def meaning(name: str, made: Request) -> Request:
    """A request as the server reads it, without the ids and secrets that clients fill in."""
    method, path, query, body = made
    struct = OPERATIONS[name].body
    if struct is None:
        return method, path, query, body
    shown = of_curl(SAMPLES[name]["curl"])[3]
    new = {one for one in OPERATIONS[name].fills if one not in shown}
    given = {key: value for key, value in body.items() if key not in new}
    return method, path, query, msgspec.convert(given, struct)


def test_the_javascript_samples_make_the_requests_of_curl() -> None:
    program = f"""
import {{ Client }} from "{ROOT / "clients" / "js" / "http.js"}";
const client = new Client("http://here"), requests = [];
const headers = {{ "content-type": "application/problem+json" }};
globalThis.fetch = async (url, {{ method, body }}) => {{
  requests.push([method, String(url).replace("http://here", ""), body ?? null]);
  const problem = {{ code: "bad_request", detail: "seen", status: 422 }};
  return new Response(JSON.stringify(problem), {{ status: 422, headers }});
}};
const samples = [
{"".join(f"async () => {{ {SAMPLES[name]['javascript']} }}," + chr(10) for name in CALLS)}];
for (const sample of samples) {{
  const before = requests.length;
  try {{ await sample(); throw new Error("no error"); }} catch (error) {{
    if (error.message !== "seen" || requests.length !== before + 1) throw error;
  }}
}}
console.log(JSON.stringify(requests));
"""
    done = subprocess.run(
        [need_program("node"), "--input-type=module"],
        input=program,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    for name, made in zip(CALLS, json.loads(done.stdout), strict=True):
        assert meaning(name, request(*made)) == meaning(name, of_curl(SAMPLES[name]["curl"])), name


@virtual
async def test_a_server_understands_every_sample() -> None:
    """What it names does not exist, but nothing is wrong with its form."""
    async with serving() as caller:
        for name, found in SAMPLES.items():
            if "curl" in found:
                method, path, query, body = of_curl(found["curl"])
                target = path + ("?" + "&".join(f"{k}={v}" for k, v in query) if query else "")
                answer = await caller(method, target, body if " -d " in found["curl"] else None)
                assert answer.status not in (400, 405, 415, 422), (name, answer.body)


async def test_the_samples_of_a_live_connection_run() -> None:
    sample = SAMPLES["rooms.connect"]["python"]
    names: dict[str, Any] = {}
    inner = textwrap.indent(f"{sample}\n    return live, room.id", "    ")
    exec(f"async def sample(client):\n{inner}", names)
    async with Served() as served, Client(served.url) as client:
        live, room = await names["sample"](client)
    assert isinstance(live, Live)
    assert room == "board.7"


def test_the_samples_are_short_and_can_be_parsed() -> None:
    for name, found in SAMPLES.items():
        for source in found.values():
            assert max(map(len, source.splitlines())) <= 100, name
        if "python" in found:
            ast.parse(f"async def sample():\n{textwrap.indent(found['python'], '    ')}")
        assert not re.search("None|null|undefined", str(found)), name
