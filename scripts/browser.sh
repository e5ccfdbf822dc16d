#!/bin/sh
# Installs Chromium for the tests of pages, where it is missing and that is possible without
# asking: as root on a Debian with apt. Elsewhere those tests are skipped, or fail in CI.
for name in chromium chromium-browser google-chrome google-chrome-stable; do
	command -v "$name" >/dev/null 2>&1 && exit 0
done
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1 || [ ! -f /etc/debian_version ]; then
	exit 0
fi
echo "installing chromium for the tests of pages"
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -y -qq --no-install-recommends chromium >/dev/null; }
if ! install 2>/dev/null; then
	apt-get update -qq >/dev/null && install || echo "chromium could not be installed" >&2
fi
exit 0
