#!/usr/bin/env bash
# Creates the root file system of the image: dev/image-root.sh BINARY DIRECTORY
set -euo pipefail
[ $# = 2 ] || { echo "usage: dev/image-root.sh BINARY DIRECTORY" >&2; exit 2; }
mkdir -p "$2/etc/ssl/certs"
cp "$1" "$2/vitistack"
# The loader and all shared libraries, at the paths where the binary expects them.
ldd "$1" | grep -o '/[^ ]*' | while read -r library; do
  mkdir -p "$2$(dirname "$library")"
  cp -L "$library" "$2$library"
done
cp -L /etc/ssl/certs/ca-certificates.crt "$2/etc/ssl/certs/"
echo 'vitistack:x:65532:65532::/:/sbin/nologin' >"$2/etc/passwd"
