#!/bin/sh
# Runs once in the service `credentials` of docker-compose.yml, before everything else: makes the keys of the bus and the
# certificates of its server, if there are none, and puts into each service's volume what it needs: its credential, and the
# authority by which it recognizes the server. The keys stay in a volume that no other service has. To run it again changes
# nothing, unless SPAZIO_SAMPLE_NODE or a name of this host is another one, or a certificate ends within a quarter.
set -eu
keys=/credentials/keys
umask 077
case $PUBLISHED in
  127.* | ::1 | "[::1]" | localhost) ;;
  *)
    [ "${PROTECTED:-}" = true ] || {
      echo "SPAZIO_PUBLISH=$PUBLISHED needs deploy/published.yml in COMPOSE_FILE, one line of .env that names all files: without it extender and dashboard answer everybody" >&2
      exit 1
    }
    ;;
esac
command -v openssl >/dev/null || { echo "the image has no openssl, which makes the certificates: choose another BASE_IMAGE" >&2; exit 1; }
printf '%s\n' "$SPAZIO_SAMPLE_NODE" >/tmp/nodes
spazio credentials --out "$keys" --nodes /tmp/nodes

# certify SERVER: a certificate for all NAMES, of an authority of its own
certify() {
  folder=$keys/tls/$1
  if [ -e "$folder/server.crt" ] && ! { [ "$(cat "$folder/names")" = "$NAMES" ] &&
    openssl x509 -checkend 7776000 -noout -in "$folder/server.crt" >/dev/null; }; then
    rm "$folder/server.crt"
  fi
  # Word by word: each is a name.
  # shellcheck disable=SC2086
  DAYS=3650 sh /certificates.sh "$folder" $NAMES
  printf '%s\n' "$NAMES" >"$folder/names"
}

# hand SOURCE FOLDER NAME MODE: a service may read meanwhile, so a file appears whole
hand() {
  cp "$1" "/credentials/$2/.new"
  chgrp 10002 "/credentials/$2/.new"
  chmod "$4" "/credentials/$2/.new"
  mv "/credentials/$2/.new" "/credentials/$2/$3"
}

for server in nats extender dashboard; do
  certify "$server"
done
# It has public keys only, and the server is another user.
hand "$keys/server.conf" server accounts.conf 644
hand "$keys/tls/nats/server.crt" tls server.crt 640
hand "$keys/tls/nats/server.key" tls server.key 640

node=$(python -c 'import sys; from schemas.subject import token; print(token(sys.argv[1]))' "$SPAZIO_SAMPLE_NODE")
hand "$keys/nodes/$node.creds" agent nats.creds 640
hand "$keys/tls/nats/ca.crt" agent ca.crt 640
for role in process cache history metrics extender dashboard; do
  hand "$keys/roles/$role.creds" "$role" nats.creds 640
  hand "$keys/tls/nats/ca.crt" "$role" ca.crt 640
done

# For deploy/published.yml, where these two leave this host.
hand "$keys/tls/extender/ca.crt" extender clients.crt 640
for role in extender dashboard; do
  hand "$keys/tls/$role/server.crt" "$role" server.crt 640
  hand "$keys/tls/$role/server.key" "$role" server.key 640
done
[ -e "$keys/dashboard.token" ] || openssl rand -hex 24 >"$keys/dashboard.token"
hand "$keys/dashboard.token" dashboard token 640
