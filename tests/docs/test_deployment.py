"""The configuration files of the deployment guide are valid and consistent with each other."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from onceward import limits
from tests.docs.book import Block, blocks, paths
from tests.needs import need

BLOCKS = blocks("guides/deployment.md", paths()["guides/deployment.md"].read_text())


def of(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


@pytest.mark.parametrize("block", of("ini"), ids=str)
def test_systemd_accepts_the_units_of_the_guide(block: Block, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd is not installed")
    unit = tmp_path / "onceward.service"
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={shutil.which('true')}", block.text, flags=re.M)
    assert text != block.text
    unit.write_text(text)
    done = subprocess.run(
        [program, "verify", str(unit)], capture_output=True, text=True, timeout=100, check=False
    )
    assert str(unit.name) not in done.stderr
    assert done.returncode == 0


def test_every_unit_runs_as_a_user_and_waits_for_running_jobs() -> None:
    assert len(of("ini")) == 2
    for block in of("ini"):
        assert re.search(r"^User=onceward$", block.text, re.M)
        [stop] = re.findall(r"^TimeoutStopSec=(\d+)$", block.text, re.M)
        assert int(stop) > limits.DRAIN_S


def test_the_user_of_the_image_is_a_number_as_kubernetes_requires() -> None:
    [image] = of("dockerfile")
    [user] = re.findall(r"^USER (.*)$", image.text, re.M)
    assert user.isdecimal()
    assert f"--uid {user} " in image.text


def test_the_pod_has_the_grace_period_and_the_container_has_the_probes() -> None:
    yaml = need("yaml")
    [deployment] = [
        found for block in of("yaml") if "kind" in (found := yaml.safe_load(block.text))
    ]
    template = deployment["spec"]["template"]
    assert template["metadata"]["labels"] == deployment["spec"]["selector"]["matchLabels"]
    pod = template["spec"]
    assert pod["terminationGracePeriodSeconds"] > limits.DRAIN_S
    [container] = pod["containers"]
    assert {"livenessProbe", "readinessProbe"} <= set(container)
