"""Check the locked packages for known vulnerabilities with pip-audit.

pip-audit succeeds even if the service has no data for any package, as with a mirror of the package
index. So the script counts the packages that were really looked up. The last line of its output
reports the number of checked packages.
"""

import argparse
import json
import re
import subprocess
import sys
from typing import Any

UNREACHABLE = re.compile(r"ConnectionError|ServiceError|SSLError|Timeout|not connect|redirect")


def judge(stdout: str, stderr: str) -> tuple[str, bool, list[str]]:
    """Parse pip-audit's output: a sentence, whether all packages were checked, and the findings.

    Raises ValueError if the output is neither a report nor a connection error.
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
        return f"the advisory service did not respond for all packages: {count}", False, found
    return f"{count}, {len(found)} known vulnerabilities", True, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("locks", nargs="+", help="lock files to audit")
    parser.add_argument("--required", action="store_true", help="fail unless all were looked up")
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
