#!/bin/sh
# Names the images of others by version and digest, in compose and in the manifests: a registry can give a tag to another image.
#
#   deploy/digests.sh     # or `make digests`; asks the registries, and needs docker with buildx
#
# Run it again for what the versions are now, and commit what it changes. deploy/kubernetes/README.md does the same for our own.
set -eu
cd "$(dirname "$0")/.."
files="docker-compose.yml deploy/monitoring.yml deploy/Dockerfile deploy/kubernetes/nats.yaml"
tag='(nats|python|prom/prometheus|grafana/grafana):v?[0-9]+\.[0-9][A-Za-z0-9._-]*'
# Word by word: each is a file, and then an image.
# shellcheck disable=SC2086
images=$(grep -ohE "$tag" $files | sort -u)
for image in $images; do
  digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$image")
  if ! printf '%s\n' "$digest" | grep -qxE 'sha256:[0-9a-f]{64}'; then
    echo "$image: its registry says '$digest', which is no digest" >&2
    exit 1
  fi
  pattern=$(printf '%s' "$image" | sed 's/[.]/\\./g')
  # shellcheck disable=SC2086
  sed -i -E "s#(^|[^A-Za-z0-9/])$pattern(@sha256:[0-9a-f]{64})?([^A-Za-z0-9._@-]|\$)#\1$image@$digest\3#g" $files
  echo "$image@$digest"
done
