import asyncio
import gc
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from onceward import limits
from onceward.app import App
from onceward.testing.clock import EPOCH_MS, Stuck, VirtualClock, VirtualLoop, run_virtual
from onceward.testing.waiting import describe


def loop_now() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def test_a_week_of_sleep_takes_no_time_and_ends_exactly():
    async def main():
        clock = VirtualClock()
        await clock.sleep(7 * 86_400)
        return clock.now_ms()

    start = time.monotonic()
    assert run_virtual(main()) == EPOCH_MS + 7 * 86_400_000
    assert time.monotonic() - start < 5


def test_sleepers_wake_in_the_order_of_their_times():
    async def main():
        clock, woken = VirtualClock(), []

        async def sleeper(delay_s):
            await clock.sleep(delay_s)
            woken.append((delay_s, clock.elapsed_ns()))

        await asyncio.gather(*map(sleeper, [3, 1, 2.5, 0.001]))
        return woken

    assert run_virtual(main()) == [
        (0.001, 1_000_000),
        (1, 10**9),
        (2.5, 2_500_000_000),
        (3, 3 * 10**9),
    ]


def test_a_program_that_waits_for_nothing_is_stuck_and_the_error_says_who_waits():
    async def patient():
        await asyncio.get_running_loop().create_future()

    async def main():
        loop_now().stuck_after_s = 0.01
        await patient()

    with pytest.raises(
        Stuck, match=r"no timer is left.*\n  task .* waits in .*patient \(test_clock"
    ):
        run_virtual(main())


def test_a_job_in_an_executor_is_waited_for_before_the_clock_jumps():
    async def main():
        loop = loop_now()
        released = threading.Event()
        job = loop.run_in_executor(None, released.wait)
        timer = loop.call_later(3600, lambda: None)
        loop.call_soon(released.set)
        assert await job
        timer.cancel()
        return loop.time()

    assert run_virtual(main()) == 0


def test_a_job_that_never_ends_is_stuck():
    released = threading.Event()

    async def main():
        loop_now().stuck_after_s = 0.01
        with ThreadPoolExecutor(1) as pool:
            try:
                loop_now().run_in_executor(pool, released.wait)
                await VirtualClock().sleep(1)
            finally:
                released.set()

    with pytest.raises(Stuck, match="an executor's job did not end"):
        run_virtual(main())


def test_a_thread_of_ones_own_can_report_before_the_clock_jumps():
    async def main():
        loop = loop_now()
        loop.grace_s = 5
        heard, done = asyncio.Event(), threading.Event()

        def work():
            loop.call_soon_threadsafe(heard.set)
            done.wait()

        thread = threading.Thread(target=work)
        thread.start()
        async with asyncio.timeout(1):
            await heard.wait()
        done.set()
        thread.join()
        return loop.time()

    assert run_virtual(main()) == 0


def test_sockets_work_in_virtual_time():
    async def echo(reader, writer):
        writer.write(await reader.readline())
        writer.close()

    async def main():
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello\n")
        line = await reader.readline()
        writer.close()
        await writer.wait_closed()
        await VirtualClock().sleep(60)
        server.close()
        await server.wait_closed()
        return line

    assert run_virtual(main()) == b"hello\n"


def test_a_wall_clock_that_jumps_does_not_take_the_virtual_clock_along():
    async def main():
        clock = VirtualClock(wall_offset_ms=40)
        assert clock.wall_offset_ms == 40
        clock.jump_wall(3_600_000)
        await clock.sleep(1)
        assert clock.jump_ms == 3_600_000
        assert clock.now_ms() == EPOCH_MS + 1_040
        assert clock.adopt() == 3_600_000
        assert clock.now_ms() == EPOCH_MS + 3_601_040

    run_virtual(main())


def test_a_small_step_of_the_wall_clock_is_slewed_away():
    async def main():
        clock = VirtualClock()
        clock.jump_wall(-limits.CLOCK_JUMP_MS + 1)
        await clock.sleep(1)
        assert clock.now_ns() == EPOCH_MS * 1_000_000 + 999_500_000

    run_virtual(main())


def test_a_virtual_clock_needs_a_virtual_loop():
    async def main():
        with pytest.raises(TypeError, match="run_virtual"):
            VirtualClock()

    asyncio.run(main())


def test_a_paused_process_catches_up_in_order_when_it_resumes():
    async def main():
        loop, clock, seen = loop_now(), VirtualClock(), []
        process = loop.process("p")

        async def ticker():
            for tick in range(4):
                await clock.sleep(1)
                seen.append((tick, loop.time()))

        process.spawn(ticker())
        await clock.sleep(1.5)
        process.pause()
        process.pause()
        process.call_soon(seen.append, "first")
        process.call_soon(seen.append, "second")
        await clock.sleep(10)
        assert seen == [(0, 1.0)]
        process.resume()
        process.resume()
        await clock.sleep(2.5)
        assert seen == [(0, 1.0), "first", "second", (1, 11.5), (2, 12.5), (3, 13.5)]

    run_virtual(main())


def test_a_timer_cancelled_while_it_waits_in_the_backlog_does_not_fire():
    async def main():
        loop, clock, seen = loop_now(), VirtualClock(), []
        process = loop.process("p")
        timer = process.context.run(loop.call_later, 1, seen.append, "fired")
        process.pause()
        await clock.sleep(2)
        timer.cancel()
        process.resume()
        await clock.sleep(1)
        assert seen == []

    run_virtual(main())


def test_a_killed_process_runs_nothing_more_not_even_finally():
    ended = []

    async def main():
        loop, clock = loop_now(), VirtualClock()
        process = loop.process("p")
        started = asyncio.Event()

        async def child():
            try:
                started.set()
                await clock.sleep(1)
            finally:
                ended.append("child")

        async def parent():
            try:
                await asyncio.create_task(child())
            finally:
                ended.append("parent")

        process.spawn(parent())
        await started.wait()
        process.kill()
        process.resume()
        process.call_soon(ended.append, "called")
        process.spawn(child())
        gc.collect()
        await clock.sleep(5)
        gc.collect()
        assert ended == []

    run_virtual(main())


def test_a_process_that_kills_itself_gets_as_far_as_its_next_await():
    async def main():
        loop, seen = loop_now(), []
        process = loop.process("p")

        async def doomed():
            seen.append("before")
            process.kill()
            seen.append("after")
            await asyncio.sleep(0)
            seen.append("never")

        process.spawn(doomed())
        await VirtualClock().sleep(1)
        assert seen == ["before", "after"]

    run_virtual(main())


def test_the_loop_ends_silently_with_tasks_that_do_not_want_to_die(caplog):
    async def main():
        loop, clock = loop_now(), VirtualClock()
        process = loop.process("p")

        async def stubborn():
            try:
                await clock.sleep(100)
            finally:
                await clock.sleep(100)

        async def fails():
            try:
                await clock.sleep(100)
            finally:
                raise ValueError

        process.spawn(stubborn())
        process.spawn(fails())
        await clock.sleep(1)

    run_virtual(main())
    gc.collect()
    assert caplog.records == []


def test_work_in_a_thread_for_a_process_that_died_does_not_hold_time_up():
    async def main():
        loop, released = loop_now(), threading.Event()
        process = loop.process("p")

        async def work():
            await loop.run_in_executor(None, released.wait)

        process.spawn(work())
        await asyncio.sleep(0)
        process.kill()
        released.set()
        await VirtualClock().sleep(10)
        return loop.time()

    assert run_virtual(main()) == 10


def test_a_process_forgets_tasks_that_are_done(monkeypatch):
    monkeypatch.setattr("onceward.testing.clock._TASKS_KEPT_MAX", 10)

    async def main():
        process = loop_now().process("p")
        for _ in range(100):
            await process.spawn(asyncio.sleep(0))
        assert len(process._tasks) <= 10

    run_virtual(main())


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_virtual_day_of_an_idle_application_costs_little(kind, tmp_path):
    async def main():
        app = App("memory://" if kind == "memory" else f"sqlite:///{tmp_path}/app.db")
        app.handler("greetings")(greet)
        async with app:
            jumps, begun_ms = 0, app.store.clock.now_ms()
            loop, jump = loop_now(), loop_now().jump

            def counted(timeout_s):
                nonlocal jumps
                jumps += 1
                jump(timeout_s)

            loop.jump = counted
            await app.store.clock.sleep(86_400)
            assert app.store.clock.now_ms() == begun_ms + 86_400_000
            return jumps

    async def greet(job):
        return "hello"

    # Most of them are the 64 slots, which scan for their next entries 49 times.
    assert run_virtual(main()) < 10_000


def test_an_application_is_on_virtual_time_with_timers_delays_and_sleep():
    async def main():
        app, seen = App("memory://"), []

        @app.handler("mails")
        async def send(job):
            await job.sleep(3600)
            seen.append(loop_now().time())

        async with app:
            receipt = await app.send("mails", None, delay_s=86_400)
            await app.timers.set(queue="mails", delay_s=60)
            await app.wait(receipt.id)
        return [round(at_s) for at_s in seen]

    assert run_virtual(main()) == [3660, 90_000]


def test_a_report_names_the_job_the_handler_and_its_line():
    async def main():
        app = App("memory://")

        @app.handler("mails", lease_s=600_000)
        async def send_mail(job):
            await answer_of_provider()

        async def answer_of_provider():
            await asyncio.get_running_loop().create_future()

        async with app:
            receipt = await app.send("mails", None)
            await app.store.clock.sleep(1)
            return receipt.id, describe(asyncio.all_tasks())

    id_, report = run_virtual(main())
    assert re.search(
        rf"job {id_} of queue 'mails' waits in .*answer_of_provider \(test_clock.py:\d+\)", report
    )
    assert "onceward-" not in report
