"""The configuration files of the deployment guide are valid and consistent with each other."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceward import limits
from tests.docs.book import Block, blocks, paths
from tests.needs import missing, need
from tests.typescript import MODULES, compiled

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


def test_caddy_accepts_the_proxy_of_the_guide(tmp_path: Path) -> None:
    program = shutil.which("caddy")
    if program is None:
        pytest.skip("caddy is not installed")
    [block] = of("caddy")
    (tmp_path / "Caddyfile").write_text(block.text)
    command = [
        program,
        "validate",
        "--adapter",
        "caddyfile",
        "--config",
        str(tmp_path / "Caddyfile"),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={"HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "Valid configuration" in done.stdout


def test_nginx_accepts_the_proxy_of_the_guide(tmp_path: Path) -> None:
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("nginx is not installed")
    trustme = need("trustme")
    certificate = trustme.CA().issue_cert("rooms.example.com")
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "rooms.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "rooms.key"))
    [block] = of("nginx")
    text = block.text.replace("/etc/ssl/", f"{tmp_path}/")
    assert text.count(str(tmp_path)) == 2
    folders = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (tmp_path / "nginx.conf").write_text(
        f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{folders}{text}}}\n"
    )
    done = subprocess.run(
        [program, "-t", "-e", f"{tmp_path}/errors", "-c", f"{tmp_path}/nginx.conf"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# Each makes the manifest wrong: a field in the wrong place, of the wrong type, or unknown.
PLANTED: dict[str, Callable[[Any], object]] = {
    "the grace period is a field of the pod": lambda manifest: manifest["spec"].update(
        terminationGracePeriodSeconds=45
    ),
    "a container has no grace period": lambda manifest: container_of(manifest).update(
        terminationGracePeriodSeconds=45
    ),
    "the grace period is a number": lambda manifest: manifest["spec"]["template"]["spec"].update(
        terminationGracePeriodSeconds="45"
    ),
    "the value of a variable is text": lambda manifest: container_of(manifest)["env"].append(
        {"name": "PORT", "value": 8080}
    ),
    "a probe is a field of a container": lambda manifest: manifest["spec"].update(
        readinessProbe=container_of(manifest).pop("readinessProbe")
    ),
    "a field is unknown": lambda manifest: container_of(manifest).update(imagePullPolice="Always"),
    "a required field is missing": lambda manifest: manifest["spec"].pop("selector"),
}


def container_of(manifest: Any) -> Any:
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    return container


def test_the_manifest_has_the_types_that_kubernetes_publishes(tmp_path: Path) -> None:
    """The TypeScript compiler reports unknown fields of a literal; PLANTED shows that it does."""
    types = MODULES / "kubernetes-types"
    if not types.is_dir():
        missing("kubernetes-types is not installed: scripts/npm.sh installs it")
    yaml = need("yaml")
    [block] = [one for one in of("yaml") if "kind" in yaml.safe_load(one.text)]
    manifests = [yaml.safe_load(block.text) for _ in range(len(PLANTED) + 1)]
    for plant, manifest in zip(PLANTED.values(), manifests[1:], strict=True):
        plant(manifest)
    for number, manifest in enumerate(manifests):
        tmp_path.joinpath(f"{number}.ts").write_text(
            'import type { Deployment } from "kubernetes-types/apps/v1";\n'
            f"export const manifest: Deployment = {json.dumps(manifest)};\n"
        )
    files = [f"{number}.ts" for number in range(len(manifests))]
    done = compiled(tmp_path, files, {"kubernetes-types/*": types / "*"})
    wrong = {int(number) for number in re.findall(r"^(\d+)\.ts\(", done.stdout, re.M)}
    assert 0 not in wrong, done.stdout
    assert [plant for number, plant in enumerate(PLANTED, 1) if number not in wrong] == []
