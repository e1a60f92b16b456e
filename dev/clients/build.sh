#!/usr/bin/env bash
# Builds third-party API clients (a client-go informer, the official Python client, helm) and prints the directory that
# contains them: informer, venv/bin/python, venv/bin/helm.
#
# Cached outside the checkout, by the hash of everything that pins the versions.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${VITISTACK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vitistack}
out=$cache/clients-$(cat "$here/informer/go.sum" "$here/informer/main.go" "$here/requirements.txt" | sha256sum | cut -c1-16)

mkdir -p "$out"
exec 9>"$out.lock"
flock 9

if [ ! -x "$out/informer" ]; then
  echo "building the client-go informer into $out" >&2
  (cd "$here/informer" && CGO_ENABLED=0 go build -mod=readonly -trimpath -o "$out/.informer" .) >&2
  mv "$out/.informer" "$out/informer" # complete or absent
fi
if [ ! -e "$out/venv/.complete" ]; then
  echo "installing the Python client and helm into $out" >&2
  rm -rf "$out/venv"
  python3 -m venv "$out/venv"
  "$out/venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt" >&2
  touch "$out/venv/.complete"
fi
echo "$out"
