#!/usr/bin/env bash
# Builds kube-apiserver, kube-controller-manager, kubectl and etcd from the modules pinned in go.mod
# and prints the directory that contains them.
#
# The directory is outside the checkout and named by the hash of go.sum, so that each set of versions is built once
# (about eight minutes on two cores), and an old set is never used for a new one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${VITISTACK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vitistack}
out=$cache/kube-$(sha256sum "$here/go.sum" | cut -c1-16)
version=$(awk '$1 == "k8s.io/kubernetes" { print $2; exit }' "$here/go.mod")
minor=$(cut -d. -f2 <<<"$version")

mkdir -p "$out"
# One build at a time: two would each take twice as long. The lock file is not removed.
exec 9>"$out.lock"
flock 9

build() { # build NAME PACKAGE
  [ -x "$out/$1" ] && return
  echo "building $1 ($version) into $out" >&2
  # kubectl cannot parse its own version unless it is set at link time.
  (cd "$here" && CGO_ENABLED=0 go build -mod=readonly -trimpath -o "$out/.$1" -ldflags "-s -w \
    -X k8s.io/component-base/version.gitVersion=$version \
    -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$minor" "$2") >&2
  mv "$out/.$1" "$out/$1" # complete or absent: an interrupted build is repeated
}

build etcd go.etcd.io/etcd/server/v3
build kubectl k8s.io/kubernetes/cmd/kubectl
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
build kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager
echo "$out"
