"""Metrics of the process and of its disk."""

import os
from pathlib import Path

from onceward.clock import Clock
from onceward.metric_table import METRICS
from onceward.observe.process import disk_metrics, process_metrics


def test_a_process_is_measured_as_the_system_has_it() -> None:
    before = process_metrics()
    assert before.keys() <= METRICS.keys()
    with open(os.devnull) as first, open(os.devnull) as second:
        after = process_metrics()
        assert after["process_open_fds"] >= before["process_open_fds"] + 2, (first, second)
    assert after["process_cpu_seconds"] >= before["process_cpu_seconds"] > 0
    assert after["process_resident_memory_bytes"] > 1 << 20
    assert after["process_max_fds"] > after["process_open_fds"]
    age_s = Clock().now_ms() / 1000 - after["process_start_time_seconds"]
    assert 0 < age_s < 24 * 3_600


def test_a_database_counts_with_its_journal(tmp_path: Path) -> None:
    path = tmp_path / "a[b].db"
    path.write_bytes(b"x" * 100)
    (tmp_path / "a[b].db-log.1").write_bytes(b"x" * 20)
    (tmp_path / "a[b].db-log.2").write_bytes(b"x" * 3)
    (tmp_path / "other.db-log.1").write_bytes(b"x" * 1_000)
    found = disk_metrics(str(path))
    assert found["database_bytes"] == 123
    assert found["disk_free_bytes"] > 0
    assert found.keys() <= METRICS.keys()


def test_other_databases_have_no_disk(tmp_path: Path) -> None:
    assert disk_metrics("") == {}
    assert disk_metrics(str(tmp_path / "gone" / "app.db")) == {}
