"""Linters accept the OpenAPI document, and clients generated from it work."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward.web.api import ROUTES
from onceward.web.openapi import document
from onceward.web.routes import Routes
from tests.needs import missing, need_program
from tests.server_process import ROOT
from tests.typescript import MODULES, compiled
from tests.web.wire import start

REDOCLY = MODULES / "@redocly" / "cli" / "bin" / "cli.js"
TYPES = MODULES / "openapi-typescript" / "bin" / "cli.js"
SPECTRAL = ROOT / ".venv-spectral/node_modules/@stoplight/spectral-cli/dist/index.js"
GENERATOR = ROOT / ".venv-openapi" / "bin"
TIMEOUT_S = 300

pytestmark = pytest.mark.openapi


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The document in a file."""
    path = tmp_path_factory.mktemp("openapi") / "openapi.json"
    path.write_bytes(document(Routes(ROUTES)))
    return path


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The URL of a server."""
    process, port = start(tmp_path, "--database", "memory://", "--no-webhooks")
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    assert process.communicate(timeout=TIMEOUT_S)[1] == ""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """The output of a program that succeeds."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=cwd,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-5_000:]
    return done.stdout


def node(tool: Path, *arguments: str | Path, cwd: Path, **environment: str) -> str:
    if not tool.is_file():
        missing(f"{tool.relative_to(ROOT)} is not installed: scripts/npm.sh installs it")
    return run(need_program("node"), tool, *arguments, cwd=cwd, **environment)


def test_the_document_passes_the_recommended_rules_of_redocly(file: Path) -> None:
    # Both settings keep it from connecting to its vendor.
    offline = {"REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"}
    rules = ("--extends", "recommended", "--format", "json")
    found = json.loads(node(REDOCLY, "lint", file.name, *rules, cwd=file.parent, **offline))
    assert found["problems"] == []
    assert found["totals"] == {"errors": 0, "warnings": 0, "ignored": 0}


def test_programs_compile_with_types_generated_for_typescript(file: Path) -> None:
    types = file.parent / "openapi.d.ts"
    node(TYPES, file.name, "--output", types.name, cwd=file.parent)
    program = str(ROOT / "tests" / "js" / "types" / "openapi.ts")
    done = compiled(file.parent, [program], {"onceward/openapi": types})
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.soak
def test_the_document_passes_the_rules_of_spectral(file: Path) -> None:
    (file.parent / "rules.json").write_text('{"extends": ["spectral:oas"]}')
    rules = ("--ruleset", "rules.json", "--format", "json", "--quiet")
    found: list[Any] = json.loads(node(SPECTRAL, "lint", file.name, *rules, cwd=file.parent))
    assert found == []


@pytest.mark.soak
def test_a_python_client_generated_from_the_document_works(
    file: Path, tmp_path: Path, url: str
) -> None:
    python = GENERATOR / "python"
    if not python.is_file():
        missing("openapi-python-client is not installed: make soak-openapi installs it")
    options = ("--meta", "none", "--output-path", "onceward_api", "--fail-on-warning")
    path = f"{GENERATOR}:{os.environ['PATH']}"
    generator = GENERATOR / "openapi-python-client"
    run(generator, "generate", "--path", file, *options, cwd=tmp_path, PATH=path)
    run(python, "-m", "compileall", "-q", "onceward_api", cwd=tmp_path)
    program = ROOT / "tests" / "web" / "openapi_client.py"
    assert run(python, program, url, cwd=tmp_path, PYTHONPATH=str(tmp_path)) == "done\n"
