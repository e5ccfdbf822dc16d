#!/bin/sh
# Runs tests on every supported Python that is installed, each in an environment .venv-3.X from requirements/dev.lock.
# Finds interpreters on the PATH and those of pyenv. usage: versions.sh [pytest arguments]
cd "$(dirname "$0")/.." || exit 1
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
# run VERSION PYTHON ARGUMENTS: install what is locked, unless that was done, then run the tests.
run() {
	version=$1 python=$2
	shift 2
	folder=.venv-$version
	mark=$folder/.dev-$(cat requirements/dev.lock pyproject.toml | cksum | cut -d ' ' -f 1)
	if [ ! -e "$mark" ]; then
		echo "installing requirements/dev.lock into $folder"
		"$python" -m venv --clear "$folder" &&
			"$folder/bin/python" -m pip install -qq --no-deps --require-hashes -r requirements/dev.lock &&
			"$folder/bin/python" -m pip install -qq --no-build-isolation --no-deps --editable . &&
			touch "$mark" || return 1
	fi
	echo "Python $("$folder/bin/python" -V | cut -d ' ' -f 2)"
	"$folder/bin/python" -m pytest -q -p no:cacheprovider "$@"
}
failed=
for version in 3.11 3.12 3.13 3.14; do
	found=
	for python in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python; do
		# A shim of pyenv can be there without its interpreter.
		"$python" -c 'import ssl, sqlite3' 2>/dev/null && found=$python
	done
	if [ -z "$found" ]; then
		echo "Python $version is not installed"
	else
		run "$version" "$found" "$@" || failed="$failed $version"
	fi
done
[ -z "$failed" ] || { echo "failed on$failed"; exit 1; }
