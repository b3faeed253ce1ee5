#!/bin/sh
# Installs pinned packages into /opt/venv with the pip of another environment: from the wheels that lie beside this
# file where there are any, else from the package index.
set -eu
cd "$(dirname "$0")"
# nkeys is published as source only; it is pure Python, and pip builds it with setuptools in an environment of its own.
set -- --disable-pip-version-check install --require-hashes --only-binary :all: --no-binary nkeys -r "$1"
if ls ./*.whl >/dev/null 2>&1; then
  set -- "$@" --no-index --find-links .
  trap '[ $? = 0 ] || echo "The folder wheelhouse does not fit: run deploy/offline.sh again, or remove it." >&2' EXIT
fi
/opt/pip/bin/pip --python /opt/venv/bin/python --no-cache-dir "$@"
