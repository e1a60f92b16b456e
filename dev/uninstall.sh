#!/usr/bin/env bash
# Removes the definitions and roles from the current cluster. Definitions take their objects with them, and nobody would
# be left to clean up behind those, so it refuses while there are any.
set -euo pipefail
config=$(cd "$(dirname "$0")/../config" && pwd)
left=
case $(kubectl get customresourcedefinitions --output name) in
  *.vitistack.io*) left=$(kubectl get vitistack --all-namespaces --output name) ;;
esac
if [ -n "$left" ]; then
  printf 'uninstall: these are still there: delete them while the operators run, or let go of machines with "vitistack release":\n%s\n' "$left" >&2
  exit 1
fi
kubectl delete --ignore-not-found -k "$config/rbac"
kubectl delete --ignore-not-found -k "$config/crd"
