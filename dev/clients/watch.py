"""Exercises an API server with the official Python client: creates, lists, patches, watches and deletes a ConfigMap.

Prints one line per event; its arguments are the kubeconfig file and the namespace.
"""

import sys
import threading

from kubernetes import client, config, watch


def main(kubeconfig: str, namespace: str) -> None:
    config.load_kube_config(kubeconfig)
    core = client.CoreV1Api()

    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="python"), data={"step": "1"})
    created = core.create_namespaced_config_map(namespace, body)
    print("created", created.metadata.name)

    version = core.list_namespaced_config_map(namespace).metadata.resource_version

    def change() -> None:
        core.patch_namespaced_config_map("python", namespace, {"data": {"step": "2"}})
        core.delete_namespaced_config_map("python", namespace)

    threading.Timer(0.5, change).start()
    stream = watch.Watch().stream(
        core.list_namespaced_config_map, namespace, resource_version=version, timeout_seconds=60
    )
    for event in stream:
        print(event["type"], event["object"].metadata.name, event["object"].data)
        if event["type"] == "DELETED":
            break

    try:
        core.read_namespaced_config_map("python", namespace)
    except client.ApiException as error:
        print("gone", error.status, error.reason)


if __name__ == "__main__":
    main(*sys.argv[1:])
