"""The pytest plugin, as users have it: each test is a run of pytest in a folder."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]

SHOP = """
import onceward

app = onceward.App("sqlite:////nowhere/not-used.db")

@app.handler("orders", retry_first_s=60)
async def order(job):
    if job.body["item"] == "flaky" and job.attempt == 1:
        raise RuntimeError("not yet")
    await job.send("mails", {"to": job.body["to"]}, delay_s=3600)
    return "sold"

@app.handler("mails")
async def mail(job):
    job.tx.put(("mailed", job.body["to"]), True)

@app.handler("naps")
async def nap(job):
    await job.sleep(86_400)
    return "rested"
"""

ASYNC = """
from dataclasses import dataclass
import shop

@dataclass
class Mail:
    to: str

async def test_time_passes(onceward_app):
    await shop.app.send("orders", {"item": "flaky", "to": "ann"}, key="1")
    assert await onceward_app.drain() == []
    [sent] = onceward_app.enqueued("orders", body={"item": "flaky"})
    assert (sent.key, sent.state) == ("1", "retrying")
    [done] = await onceward_app.advance(120)
    assert (done.state, done.job.result) == ("succeeded", "sold")
    [mail] = onceward_app.enqueued("mails", body=Mail("ann"))
    assert onceward_app.enqueued("mails", body=Mail("bob")) == []
    assert (mail.body, mail.delay_s, mail.state) == ({"to": "ann"}, 3600, "scheduled")
    assert [one.queue for one in await onceward_app.advance(3600)] == ["mails"]
    assert await shop.app.run(lambda tx: tx.get(("mailed", "ann")))

async def test_the_database_is_empty_again(onceward_app):
    assert onceward_app.enqueued() == []
    assert await shop.app.run(lambda tx: tx.get(("mailed", "ann"))) is None

async def test_jobs_run_at_once(onceward_app):
    with onceward_app.inline():
        receipt = await shop.app.send("orders", {"item": "lamp", "to": "ann"})
        assert (await shop.app.job(receipt.id)).result == "sold"

        async def sell(tx):
            return await shop.app.send("orders", {"item": "sofa", "to": "bob"}, tx=tx)

        sold = await shop.app.run(sell)
        assert (await shop.app.job(sold.id)).result == "sold"

async def test_a_sleeping_job_wakes_up(onceward_app):
    receipt = await shop.app.send("naps", None)
    assert await onceward_app.advance(86_000) == []
    [done] = await onceward_app.advance(401)
    assert (done.id, done.job.result) == (receipt.id, "rested")
"""

SYNC = """
def test_plain_functions(onceward_sync_app):
    app = onceward_sync_app
    receipt = app.send("orders", {"item": "lamp", "to": "ann"})
    assert [one.job.result for one in app.drain()] == ["sold"]
    assert app.job(receipt.id).state == "succeeded"
    app.timers.set("later", queue="orders", body={"item": "sofa", "to": "bob"}, delay_s=10)
    app.advance(11)
    assert len(app.enqueued("orders", state="succeeded")) == 2
    assert len(app.enqueued("orders", body={"item": "sofa"}, key=None)) == 1
    with app.inline():
        receipt = app.send("orders", {"item": "rug", "to": "cas"})
        assert app.job(receipt.id).result == "sold"
"""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest with few plugins, since all that are installed here take long to load."""
    plugins = "onceward.testing.pytest_plugin,pytest_asyncio.plugin,anyio.pytest_plugin"
    pytester._monkeypatch.setenv("PYTEST_PLUGINS", plugins)
    pytester._monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyprojecttoml(
        "[tool.pytest.ini_options]\n"
        'asyncio_mode = "auto"\nasyncio_default_fixture_loop_scope = "function"\n'
        'pythonpath = ["."]\n'
    )
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


def test_the_package_declares_the_plugin():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert declared["pytest11"] == {"onceward": "onceward.testing.pytest_plugin"}


def test_the_plugin_loads_nothing_that_plain_runs_do_not_need():
    code = (
        "import sys, pytest, onceward.testing.pytest_plugin\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('apsw', 'aiohttp')"
        " or name in ('onceward.app', 'onceward.store', 'onceward.testing.clock')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_async_tests_control_time_and_jobs(pytester: pytest.Pytester):
    pytester.makepyfile(shop=SHOP, test_shop=ASYNC)
    run(pytester, "--onceward-app", "shop:app").assert_outcomes(passed=4)


def test_plain_tests_control_time_and_jobs(pytester: pytest.Pytester):
    pytester.makepyfile(shop=SHOP, test_shop=SYNC)
    run(pytester, "-o", "onceward_app=shop").assert_outcomes(passed=1)


def test_anyio_tests_and_async_fixtures_that_start_the_application(pytester: pytest.Pytester):
    pytester.makepyfile(
        shop=SHOP,
        test_shop="""
        import onceward, pytest, shop

        pytestmark = pytest.mark.anyio

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.fixture
        def onceward_application():
            return lambda: shop.app

        @pytest.fixture
        async def sold(onceward_app):
            await onceward_app.start()
            return await shop.app.send("orders", {"item": "lamp", "to": "ann"})

        class TestShop:
            async def test_a_method(self, onceward_app, sold):
                assert [one.id for one in await onceward_app.drain()] == [sold.id]
        """,
    )
    run(pytester, "-o", "asyncio_mode=strict").assert_outcomes(passed=1)


def test_an_application_of_synchronous_code_uses_the_loop_of_the_test(pytester: pytest.Pytester):
    pytester.makepyfile(
        shop="""
        from onceward.sync import App

        app = App("sqlite:////nowhere/not-used.db")

        @app.handler("wins")
        def win(job):
            job.tx.put(("score", job.body), (job.tx.get(("score", job.body)) or 0) + 1)
            app.send("mails", job.body, delay_s=60)

        @app.handler("mails")
        def mail(job):
            job.tx.put(("mailed", job.body), True)
        """,
        test_shop="""
        import onceward, pytest, shop

        def score(tx):
            tx.put(("seen", "ann"), True)
            return tx.get(("score", "ann"))

        def test_plain(onceward_sync_app):
            receipt = shop.app.send("wins", "ann")
            assert onceward_sync_app.drain()[0].id == receipt.id
            assert shop.app.run(score) == 1
            assert shop.app.job(receipt.id).state == "succeeded"
            onceward_sync_app.advance(60)
            assert shop.app.run(lambda tx: tx.get(("mailed", "ann"))) is True

        def test_locks(onceward_sync_app):
            with pytest.raises(onceward.BadInput, match="use an async test"):
                with shop.app.locks.hold("printer"):
                    pass
        """,
    )
    run(pytester, "--onceward-app", "shop").assert_outcomes(passed=2)


def test_marked_tests_are_simulated_with_the_messages_that_they_send(pytester: pytest.Pytester):
    pytester.makepyfile(
        shop="""
        import onceward

        app = onceward.App("memory://")

        @app.handler("wins")
        async def win(job):
            score = await app.run(lambda tx: tx.get(("score", "ann"))) or 0
            job.tx.put(("score", "ann"), score + 1)
        """,
        test_shop="""
        import pytest, shop

        @pytest.mark.onceward_simulate
        async def test_async(onceward_app):
            await shop.app.send("wins", 1)
            await onceward_app.drain()

        @pytest.mark.onceward_simulate
        def test_plain(onceward_sync_app):
            onceward_sync_app.send("wins", 1)

        @pytest.mark.onceward_simulate
        async def test_nothing(onceward_app):
            pass

        async def test_unmarked(onceward_app):
            await shop.app.send("wins", 1)
        """,
    )
    run(pytester, "--onceward-app", "shop").assert_outcomes(passed=4)
    result = run(pytester, "--onceward-app", "shop", "--onceward-seeds", "20")
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines_random(
        ["*no run without faults ends like this*", "*the test has sent no message*"]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "*no application: set `onceward_app = shop:app`*"),
        (
            ["--onceward-app", "nowhere:app"],
            "*cannot load the application 'nowhere:app'*",
        ),
        (
            ["--onceward-app", "shop:onceward"],
            "*'shop:onceward' is not an `onceward.App`*",
        ),
        (
            ["--onceward-app", "shop:order"],
            "*'shop:order' is not an `onceward.App`, but *",
        ),
    ],
)
def test_a_wrong_application_is_reported(pytester: pytest.Pytester, arguments, message):
    pytester.makepyfile(shop=SHOP, test_shop=ASYNC)
    result = run(pytester, *arguments)
    result.stdout.fnmatch_lines([message])


def test_wrong_uses_are_reported(pytester: pytest.Pytester):
    pytester.makepyfile(
        shop=SHOP,
        test_shop="""
        import pytest, shop

        @pytest.mark.asyncio(loop_scope="session")
        async def test_real_time():
            pass

        def test_plain(onceward_app):
            pass

        async def test_async(onceward_sync_app):
            pass

        @pytest.mark.asyncio(loop_scope="session")
        async def test_session(onceward_app):
            pass

        async def test_limit(onceward_app):
            await onceward_app.drain(timeout_s=-1)
        """,
    )
    result = run(pytester, "--onceward-app", "shop:app")
    result.stdout.fnmatch_lines_random(
        [
            "*onceward_app is for async tests: use onceward_sync_app here*",
            "*onceward_sync_app is for plain tests: use onceward_app here*",
            "*the event loop of this test has no virtual time*",
            "*a time limit*-1*",
        ]
    )


def test_a_job_that_does_not_end_is_named_with_its_line(pytester: pytest.Pytester):
    pytester.makepyfile(
        shop="""
        import asyncio, onceward

        app = onceward.App("memory://")

        @app.handler("mails")
        async def send_mail(job):
            await asyncio.get_running_loop().create_future()
        """,
        test_shop="""
        import shop

        async def test_drain(onceward_app):
            await shop.app.send("mails", None)
            await onceward_app.drain(timeout_s=100)
        """,
    )
    result = run(pytester, "--onceward-app", "shop:app")
    result.stdout.fnmatch_lines(
        [
            "*DrainTimeout: after 100 s of virtual time these jobs have not ended*'mails'*",
            "*job * of queue 'mails' waits in send_mail (shop.py:7)*",
        ]
    )


@pytest.mark.parametrize("given", ["-1", "many"])
def test_an_invalid_number_of_seeds_is_rejected(pytester: pytest.Pytester, given: str) -> None:
    found = pytester.runpytest_subprocess(f"--onceward-seeds={given}")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines([f"*invalid number of seeds '{given}'; use 0 or more"])
