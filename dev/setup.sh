#!/usr/bin/env bash
# Installs everything that a fresh Debian machine needs. Idempotent and quiet: installed tools are left alone.
#
#   dev/setup.sh build         the prerequisites of `cargo build`
#   dev/setup.sh lint          + cargo-deny and typos
#   dev/setup.sh integration   + kube-apiserver, kube-controller-manager, kubectl and etcd, built from pinned Go modules,
#                              KubeVirt's virt-api and virt-controller with a stand-in for its nodes,
#                              and third-party API clients
#
# Tools are built outside the checkout ($VITISTACK_CACHE, default ~/.cache/vitistack), one directory per version.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${VITISTACK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vitistack}
# crates/xtask reads these versions.
cargo_deny=0.20.2
typos_cli=1.52.0

need() { # need COMMAND PACKAGE: installs the Debian package unless the command exists
  command -v "$1" >/dev/null || install "$2"
}

install() { # install PACKAGE
  command -v apt-get >/dev/null || missing "$1" "install it"
  local as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  echo "setup: installing $1" >&2
  "${as_root[@]}" apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "$1" >&2
}

missing() { # missing WHAT FIX
  echo "setup: $1 is missing: $2" >&2
  exit 1
}

build() {
  need cc gcc
  need make make
  # Tests type on a terminal and stop the processes that they start.
  need script bsdutils
  need pkill procps
  command -v cargo >/dev/null || missing cargo "install Rust with rustup (rust-toolchain.toml pins the version)"
}

lint() {
  build
  tool cargo-deny cargo-deny "$cargo_deny"
  tool typos-cli typos "$typos_cli"
}

tool() { # tool PACKAGE PROGRAM VERSION: installs a program from crates.io into the cache
  local root=$cache/$1-$3
  [ -x "$root/bin/$2" ] && return
  echo "setup: building $1 $3 (takes minutes, only once)" >&2
  cargo install --quiet --locked --root "$root" "$1@$3" >&2
}

integration() {
  build
  command -v go >/dev/null || missing go "install Go $(awk '$1 == "go" { print $2 }' "$here/kube/go.mod") or newer"
  need flock util-linux
  need python3 python3
  python3 -c 'import ensurepip' 2>/dev/null || install python3-venv
  "$here/kube/build.sh" >/dev/null
  "$here/clients/build.sh" >/dev/null
  "$here/kubevirt/build.sh" >/dev/null
}

case "${1:-}" in
  build | lint | integration) "$1" ;;
  *) echo "usage: dev/setup.sh build|lint|integration" >&2; exit 2 ;;
esac
