#!/usr/bin/env bash
# Everything a fresh Debian machine needs, in one place. Idempotent and quiet: what is there is left alone.
#
#   dev/setup.sh build         what `cargo build` needs
#   dev/setup.sh lint          + cargo-deny
#   dev/setup.sh integration   + kube-apiserver, kube-controller-manager, kubectl and etcd, built from pinned Go modules,
#                              KubeVirt's virt-api and virt-controller with a stand-in for its nodes,
#                              and API clients that nobody here wrote
#
# Built tools are kept outside the checkout ($VITISTACK_CACHE, default ~/.cache/vitistack), one directory per version.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${VITISTACK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vitistack}
cargo_deny=0.20.2

need() { # need COMMAND PACKAGE: installs the Debian package unless the command is there
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
  # Tests press keys on a terminal and kill what they started.
  need script bsdutils
  need pkill procps
  command -v cargo >/dev/null || missing cargo "install Rust with rustup (rust-toolchain.toml names the version)"
}

lint() {
  build
  local root=$cache/cargo-deny-$cargo_deny
  if [ ! -x "$root/bin/cargo-deny" ]; then
    echo "setup: building cargo-deny $cargo_deny (some minutes, once)" >&2
    cargo install --quiet --locked --root "$root" "cargo-deny@$cargo_deny" >&2
  fi
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
