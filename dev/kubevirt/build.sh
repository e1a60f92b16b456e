#!/usr/bin/env bash
# Builds KubeVirt's virt-api and virt-controller from the module pinned in go.mod, and our programs `manifests` and
# `standin`; prints the directory that contains them.
#
# The directory is outside the checkout and named by the hash of all sources, so that everything is built once (about
# seven minutes on two cores; seconds if only our programs changed).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${VITISTACK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vitistack}
out=$cache/kubevirt-$(cat "$here"/go.mod "$here"/go.sum "$here"/*/*.go | sha256sum | cut -c1-16)

mkdir -p "$out"
# One build at a time: two would each take twice as long. The lock file is not removed.
exec 9>"$out.lock"
flock 9

build() { # build NAME PACKAGE
  [ -x "$out/$1" ] && return
  echo "building $1 into $out" >&2
  (cd "$here" && CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags "-s -w" -o "$out/.$1" "$2") >&2
  mv "$out/.$1" "$out/$1" # complete or absent: an interrupted build is repeated
}

build virt-api kubevirt.io/kubevirt/cmd/virt-api
build virt-controller kubevirt.io/kubevirt/cmd/virt-controller
build manifests ./manifests
build standin ./standin
echo "$out"
