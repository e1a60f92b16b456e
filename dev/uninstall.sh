#!/usr/bin/env bash
# Removes the CRDs and roles from the current cluster. Deleting a CRD deletes its objects without cleaning up their
# machines, so this refuses while such objects exist.
set -euo pipefail
config=$(cd "$(dirname "$0")/../config" && pwd)
left=
case $(kubectl get customresourcedefinitions --output name) in
  *.vitistack.io*) left=$(kubectl get vitistack --all-namespaces --output name) ;;
esac
if [ -n "$left" ]; then
  printf 'uninstall: these objects still exist: delete them while the operators run, or release machines with "vitistack release":\n%s\n' "$left" >&2
  exit 1
fi
kubectl delete --ignore-not-found -k "$config/rbac"
kubectl delete --ignore-not-found -k "$config/crd"
