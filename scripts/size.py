"""Prints the number of bytes that a page loads for the browser client."""

from onceward.web.scripts import NAMES, bundled

for name in NAMES:
    script = bundled(name)
    print(f"{name:16}{len(script.text):8} bytes{len(script.small):8} by gzip")
