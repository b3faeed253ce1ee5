#!/bin/sh
# Prints how the three NATS servers of deploy/kustomize/production know each other, with a new password.
set -eu
password=$(openssl rand -hex 24)
echo "authorization { user: spazio, password: \"$password\" }"
echo 'routes: ['
for number in 0 1 2; do
  echo "  \"nats://spazio:$password@spazio-nats-$number.spazio-nats-servers.spazio.svc:6222\""
done
echo ']'
