#!/bin/sh
# Runs once in the service `credentials` of docker-compose.yml, before everything else: makes the keys of the bus, if there
# are none, and puts into each service's volume the one credential that it needs. The keys stay in a volume that no other
# service has. To run it again changes nothing, unless SPAZIO_SAMPLE_NODE has another name.
set -eu
keys=/credentials/keys
umask 077
printf '%s\n' "$SPAZIO_SAMPLE_NODE" >/tmp/nodes
spazio credentials --out "$keys" --nodes /tmp/nodes

# hand SOURCE FOLDER NAME MODE: a service may read meanwhile, so a file appears whole
hand() {
  cp "$1" "/credentials/$2/.new"
  chgrp 10002 "/credentials/$2/.new"
  chmod "$4" "/credentials/$2/.new"
  mv "/credentials/$2/.new" "/credentials/$2/$3"
}

node=$(python -c 'import sys; from schemas.subject import token; print(token(sys.argv[1]))' "$SPAZIO_SAMPLE_NODE")
# It has public keys only, and the server is another user.
hand "$keys/server.conf" server accounts.conf 644
hand "$keys/nodes/$node.creds" agent nats.creds 640
for role in process cache history metrics extender dashboard; do
  hand "$keys/roles/$role.creds" "$role" nats.creds 640
done
