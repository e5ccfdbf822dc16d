import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from onceward.extras import EXTRAS, missing

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
# The package of a module with another name.
PACKAGES = {"jwt": "pyjwt", "opentelemetry": "opentelemetry-api"}

# Hides the modules that are named on the command line.
HIDE = "import asyncio, sys\nfor name in sys.argv[1:]:\n    sys.modules[name] = None\n"


def packages(extra: str) -> set[str]:
    """The names of the packages of an extra, and of the extras in it."""
    found = set()
    for line in PROJECT["optional-dependencies"][extra]:
        if line.startswith("onceward["):
            for other in line.removeprefix("onceward[").removesuffix("]").split(","):
                found |= packages(other)
        found.add(line.partition(">")[0].partition("[")[0])
    return found


def run(program: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *program, *EXTRAS],
        cwd=folder,
        env={"PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_each_optional_module_is_in_the_extra_that_errors_name() -> None:
    core = {line.partition(">")[0] for line in PROJECT["dependencies"]}
    for module, extra in EXTRAS.items():
        package = PACKAGES.get(module, module)
        assert package in packages(extra)
        assert package not in core


def test_the_server_includes_all_that_commands_need() -> None:
    assert packages("cli") | packages("client") | packages("webhooks") <= packages("server")


def test_an_embedded_application_needs_no_extra(tmp_path: Path) -> None:
    done = run([str(Path(__file__).with_name("embedded.py"))], tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (
            "import onceward.client",
            "ModuleNotFoundError: onceward.client needs aiohttp: pip install 'onceward[client]'",
        ),
        (
            "import onceward.integrations.fastapi",
            "ModuleNotFoundError: onceward.integrations.fastapi needs fastapi: "
            "pip install 'onceward[fastapi]'",
        ),
        (
            "sys.modules['click'] = None; import onceward.integrations.flask",
            "ModuleNotFoundError: onceward.integrations.flask needs flask: "
            "pip install 'onceward[flask]'",
        ),
        (
            "sys.modules['django'] = None; import onceward.integrations.django",
            "ModuleNotFoundError: onceward.integrations.django needs django: "
            "pip install 'onceward[django]'",
        ),
        (
            "import onceward.integrations.starlette",
            "ModuleNotFoundError: onceward.integrations.starlette needs starlette: "
            "pip install 'onceward[fastapi]'",
        ),
        (
            "from onceward.web import run_server",
            "ModuleNotFoundError: onceward.web.run_server needs uvicorn: "
            "pip install 'onceward[server]'",
        ),
        (
            "import onceward.cli; sys.exit(onceward.cli.main(['db', 'check', 'x.db']))",
            "onceward: this needs rich: pip install 'onceward[cli]' [bad_settings]",
        ),
        (
            "import onceward\n"
            "async def main():\n"
            "    async with onceward.App('memory://', outward=onceward.Outward()): pass\n"
            "asyncio.run(main())",
            "webhook calls need httptools: pip install 'onceward[webhooks]'",
        ),
        (
            "import onceward; onceward.App('postgresql://localhost/x')",
            "postgresql:// needs asyncpg: pip install 'onceward[postgres]'",
        ),
        (
            "from onceward.webhooks.http.addresses import Guard; Guard().parse('http://bücher.de')",
            "need idna: pip install 'onceward[webhooks]'",
        ),
    ],
    ids=[
        "client",
        "fastapi",
        "flask",
        "django",
        "starlette",
        "server",
        "cli",
        "webhooks",
        "postgres",
        "names",
    ],
)
def test_an_error_names_the_extra_to_install(use: str, error: str, tmp_path: Path) -> None:
    done = run(["-c", HIDE + use], tmp_path)
    assert done.returncode != 0
    assert error in done.stderr.splitlines()[-1]


def test_a_module_of_no_extra_has_no_advice() -> None:
    assert missing(ModuleNotFoundError("no", name="numpy.core")) is None
    assert missing(ModuleNotFoundError("no", name="rich.table")) == (
        "rich: pip install 'onceward[cli]'"
    )


def test_importing_the_package_loads_no_event_loop_and_no_engine(tmp_path: Path) -> None:
    program = (
        "import sys, onceward\n"
        "heavy = {'asyncio', 'ssl', 'apsw', 'onceward.app', 'onceward.engine', 'onceward.api'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)))"
    )
    assert run(["-c", program], tmp_path).stderr.strip() == ""
