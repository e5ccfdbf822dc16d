#!/bin/sh
# Installs esbuild, TypeScript and React into .venv-npm, if npm is here. Without them `make bundle` fails, and tests that
# use them are skipped, or fail in CI.
cd "$(dirname "$0")/.." || exit 1
lock=tests/js/types/package-lock.json
cmp -s "$lock" .venv-npm/package-lock.json && [ -d .venv-npm/node_modules ] && exit 0
command -v npm >/dev/null 2>&1 || exit 0
echo "installing $lock into .venv-npm"
rm -rf .venv-npm && mkdir .venv-npm && cp tests/js/types/package*.json .venv-npm
npm ci --prefix .venv-npm --ignore-scripts --no-audit --no-fund --loglevel=error ||
	rm -rf .venv-npm
exit 0
