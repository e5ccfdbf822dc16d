"""How many bytes a page loads for the client for browsers, as the server gives it."""

from onceward.web.scripts import NAMES, packed

for name in NAMES:
    script = packed(name)
    print(f"{name:16}{len(script.text):8} bytes{len(script.small):8} by gzip")
