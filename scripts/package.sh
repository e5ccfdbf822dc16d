#!/bin/sh
# Builds the wheel and the sdist into dist/, checks them, installs the wheel into new environments, and writes SBOMs.
# Checks the npm package of clients/js as well; without npm that part is skipped, or fails in CI.
# usage: package.sh python
set -eu
cd "$(dirname "$0")/.."
python=$1
tools=.venv-package/bin/python
environment=.venv-package/installed
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

rm -rf dist "$environment"
$tools -m hatchling build -d dist >/dev/null
$tools -m twine --no-color check --strict dist/*
$tools -m check_wheel_contents dist/*.whl
# The sdist makes the same wheel.
again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT
tar -xzf dist/*.tar.gz -C "$again" --strip-components 1
(cd "$again" && "$OLDPWD/$tools" -m hatchling build -t wheel -d "$again/dist" >/dev/null)
cmp dist/*.whl "$again"/dist/*.whl

# install LOCK: a new environment with locked packages and the wheel.
install() {
	"$python" -m venv --clear "$environment"
	"$environment/bin/python" -m pip install -qq --require-hashes -r "requirements/$1.lock"
	"$environment/bin/python" -m pip install -qq --no-deps dist/*.whl
	"$environment/bin/python" -m pip check
}
# sbom NAME: the packages of that environment, without pip.
sbom() {
	"$environment/bin/python" -m pip --python "$environment/bin/python" uninstall -qq --yes pip setuptools
	$tools -m cyclonedx_py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
		--spec-version 1.6 --output-file "build/$1.cdx.json" "$environment"
	echo "build/$1.cdx.json: $(grep -c '"purl"' "build/$1.cdx.json") packages"
}
mkdir -p build
install core
(cd "$again" && "$OLDPWD/$environment/bin/python" -I "$OLDPWD/tests/embedded.py")
sbom onceward
install server
"$environment/bin/onceward" --version
sbom onceward-server

if [ -d .venv-attw/node_modules ]; then
	.venv-attw/node_modules/.bin/publint --strict clients/js
	(cd "$again" && npm pack --silent "$OLDPWD/clients/js" >/dev/null)
	.venv-attw/node_modules/.bin/attw --profile esm-only --quiet "$again"/onceward-*.tgz
elif [ -n "${CI:-}" ]; then
	echo "npm is missing: the package of clients/js was not checked" >&2
	exit 1
else
	echo "npm is missing: skipped the package of clients/js"
fi
ls -l dist
