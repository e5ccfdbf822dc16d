#!/bin/sh
# Installs npm packages from a folder with a lock file, if npm is here: esbuild, TypeScript, pyright, React and the tools of the
# OpenAPI document into .venv-npm, unless other folders are given. Without them `make bundle` fails, and tests that use
# them are skipped, or fail in CI.
# usage: npm.sh [folder of package.json] [folder to install into]
cd "$(dirname "$0")/.." || exit 1
from=${1:-tests/js/types}
into=${2:-.venv-npm}
lock=$from/package-lock.json
cmp -s "$lock" "$into/package-lock.json" && [ -d "$into/node_modules" ] && exit 0
command -v npm >/dev/null 2>&1 || exit 0
echo "installing $lock into $into"
rm -rf "$into" && mkdir "$into" && cp "$from"/package*.json "$into"
npm ci --prefix "$into" --ignore-scripts --no-audit --no-fund --loglevel=error ||
	rm -rf "$into"
exit 0
