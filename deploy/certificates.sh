#!/bin/sh
# Makes certificates for TLS between spazio's parts, of an authority of their own. A folder is for one server:
#
#   deploy/certificates.sh FOLDER NAME...      # names and addresses at which clients reach the server
#
# FOLDER then has ca.crt, by which clients recognize the server (and the server its clients); server.crt and server.key, by
# which the servers of a cluster also know each other; client.crt and client.key; and ca.key, which signs others and belongs on no server. Existing files are kept: to renew
# one, remove it and run this again. DAYS says how long they are valid (825). Needs openssl, 1.1.1 or newer.
set -eu
[ $# -ge 2 ] || { echo "usage: $0 FOLDER NAME..." >&2; exit 2; }
folder=$1
shift
umask 077
mkdir -p "$folder"
cd "$folder"
days=${DAYS:-825}

alternatives=
for name; do
  case $name in
    *:*) kind=IP ;;
    *[!0-9.]*) kind=DNS ;;
    *) kind=IP ;;
  esac
  alternatives=$alternatives${alternatives:+,}$kind:$name
done

key() {
  openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>/dev/null
}

# sign NAME PURPOSE EXTENSIONS: a key and a certificate of the authority
sign() {
  [ -e "$1.crt" ] && return
  key "$1.key"
  printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=%s\n%s\n' "$2" "$3" >"$1.ext"
  openssl req -new -key "$1.key" -subj "/O=spazio/CN=spazio-$1" |
    openssl x509 -req -CA ca.crt -CAkey ca.key -set_serial "0x$(openssl rand -hex 16)" -days "$days" \
      -extfile "$1.ext" -out "$1.crt" 2>/dev/null || { echo "$folder: openssl cannot sign $1.crt with ca.key" >&2; exit 1; }
  rm "$1.ext"
}

if [ ! -e ca.crt ]; then
  key ca.key
  # OpenSSL 1.1.1 puts extensions of the command line beside those of the system's configuration, and Go refuses one that is there twice.
  printf '%s\n' '[req]' distinguished_name=subject x509_extensions=authority '[subject]' '[authority]' subjectKeyIdentifier=hash \
    basicConstraints=critical,CA:TRUE keyUsage=critical,keyCertSign,cRLSign >ca.ext
  openssl req -x509 -new -config ca.ext -key ca.key -subj /O=spazio/CN=spazio-authority -days "$((days * 4))" -out ca.crt
  rm ca.ext
fi
sign server serverAuth,clientAuth "subjectAltName=$alternatives"
sign client clientAuth ""
