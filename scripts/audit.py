"""Ask the advisory service whether a locked package has a known vulnerability.

pip-audit succeeds when the service answers "not found" for every package, as a
mirror of the package index does. An audit that did not happen must not look
like one that found nothing: so the packages that were really looked up are
counted, and the last line says what was and what was not checked.
"""

import argparse
import json
import re
import subprocess
import sys
from typing import Any

UNREACHABLE = re.compile(r"ConnectionError|ServiceError|SSLError|Timeout|not connect|redirect")


def judge(stdout: str, stderr: str) -> tuple[str, bool, list[str]]:
    """What pip-audit's output says: a sentence, whether all was checked, and what was found.

    Raises ValueError where the output is neither a report nor a failure to connect.
    """
    try:
        packages: list[dict[str, Any]] = json.loads(stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        if UNREACHABLE.search(stderr):
            return "the advisory service cannot be reached", False, []
        raise ValueError(stderr or "pip-audit printed nothing") from None
    found = [
        f"{package['name']} {package['version']}: {vuln['id']}, "
        f"fixed in {', '.join(vuln['fix_versions']) or 'no version yet'}"
        for package in packages
        for vuln in package.get("vulns", ())
    ]
    looked_up = sum("skip_reason" not in package for package in packages)
    count = f"{looked_up} of {len(packages)} locked packages looked up"
    if not packages or looked_up < len(packages):
        return f"the advisory service did not answer for all: {count}", False, found
    return f"{count}, {len(found)} known vulnerabilities", True, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("locks", nargs="+", help="lock files to audit")
    parser.add_argument("--required", action="store_true", help="fail if not all was looked up")
    args = parser.parse_args()
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes"]
    command += ["--format", "json", "--progress-spinner", "off"]
    for lock in args.locks:
        command += ["-r", lock]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        sentence, complete, found = judge(run.stdout, run.stderr)
    except ValueError as error:
        print(f"audit: pip-audit failed:\n{error}", file=sys.stderr)
        return 1
    for line in found:
        print(f"audit: {line}")
    print(f"audit: {sentence}" if complete else f"audit: NOT DONE, {sentence}")
    return 1 if found or (args.required and not complete) else 0


if __name__ == "__main__":
    sys.exit(main())
