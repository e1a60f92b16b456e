//! The hostile tenant: attacks on a real kube-apiserver with exactly the shipped roles and policies.
//!
//! The operators run as their service account and the tenant has the role `edit` in one namespace. KubeVirt, CDI and Multus
//! are CRDs without controllers: the suite looks at what the operators write.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::NamedTempFile;
use vitistack_testkit::{Companion, Guarded, KubeServer, KubeVirt, Options, User};

use crate::{
    guide::{ROOT, succeed},
    lines::transcript_of,
};

/// The service account of the operators, with the bindings of `config/default`.
const ACCOUNT: &str = "system:serviceaccount:vitistack-system:vitistack-manager";

/// The owner of the namespace `tenant-a`, who attacks.
const TENANT: &str = "tenant";

/// Someone who runs the platform.
const PLATFORM: &str = "platform";

/// Longest wait for anything. Reached only when something is broken.
const LIMIT: Duration = Duration::from_mins(1);

/// How long the operators are given to do what they must not do.
const PATIENCE: Duration = Duration::from_secs(3);

/// The cluster under attack. The operators end before the server.
struct Cluster {
    operators: Guarded,
    log: NamedTempFile,
    server: KubeServer,
    _kubeconfig: NamedTempFile,
}

impl Cluster {
    async fn start() -> Self {
        let groups =
            ["system:serviceaccounts", "system:serviceaccounts:vitistack-system", "system:authenticated"];
        let people = [TENANT, PLATFORM].map(|name| User::new(name, &["system:authenticated"]));
        let users = [User::new(ACCOUNT, &groups)].into_iter().chain(people).collect();
        let options = Options { has_controller_manager: true, users, ..Options::default() };
        let server = KubeServer::start(&options).await.unwrap();
        let kubectl = |arguments: &[&str]| succeed(&server.kubectl(arguments).unwrap());

        kubectl(&["apply", "--server-side", "-k", &format!("{ROOT}/config/default")]);
        KubeVirt::install_crds(&server).unwrap();
        for companion in [Companion::Cdi, Companion::Multus] {
            KubeVirt::install(&server, companion).unwrap();
        }
        for namespace in ["tenant-a", "victim", "bystander", "infra", "virtual-machines"] {
            kubectl(&["create", "namespace", namespace]);
        }
        kubectl(&["annotate", "namespace", "virtual-machines", "vitistack.io/allow-references-from=infra"]);
        let bind = |name: &str, what: &[&str]| {
            kubectl(&[&["create", "rolebinding", name, "-n", "tenant-a"], what].concat());
        };
        bind("tenant", &["--clusterrole=edit", "--user=tenant"]);
        // KubeVirt and CDI add their kinds to the role `edit` when they are installed whole.
        let kinds = "--resource=virtualmachines.kubevirt.io,datavolumes.cdi.kubevirt.io";
        kubectl(&["create", "clusterrole", "kubevirt-edit", "--verb=list,patch", kinds]);
        bind("platform", &["--clusterrole=edit", "--user=platform"]);
        bind("kubevirt", &["--clusterrole=kubevirt-edit", "--user=platform", "--user=tenant"]);
        bind("platform-editor", &["--clusterrole=vitistack-platform-editor", "--user=platform"]);

        let log = NamedTempFile::new().unwrap();
        // The name of the account has colons, which separate the paths of kubeconfigs.
        let copy = NamedTempFile::new().unwrap();
        std::fs::copy(server.kubeconfig_of(ACCOUNT), copy.path()).unwrap();
        let kubeconfig = format!("--kubeconfig={}", copy.path().display());
        let arguments = [
            "NAMESPACE=vitistack-system",
            "METRICS_BIND_ADDRESS=127.0.0.1:0",
            "HEALTH_PROBE_BIND_ADDRESS=127.0.0.1:0",
            env!("CARGO_BIN_EXE_vitistack"),
            "run",
            "datacenter",
            "machine-provider",
            "kubevirt",
            kubeconfig.as_str(),
        ];
        let operators =
            Guarded::start(Path::new("/usr/bin/env"), arguments, log.reopen().unwrap(), None).unwrap();
        let cluster = Self { operators, log, server, _kubeconfig: copy };
        cluster.create(&json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "none",
            "metadata": {
                "name": "standard",
                "annotations": { "storageclass.kubernetes.io/is-default-class": "true" },
            },
        }));
        cluster
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        succeed(&self.server.kubectl(arguments).unwrap())
    }

    fn run(&self, arguments: &[&str], object: &Value) -> std::process::Output {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), object.to_string()).unwrap();
        self.server.kubectl(&[arguments, &["-f", file.path().to_str().unwrap()]].concat()).unwrap()
    }

    /// Creates an object as an administrator.
    fn create(&self, object: &Value) {
        succeed(&self.run(&["create"], object));
    }

    /// Creates a Machine as the tenant, who owns the namespace `tenant-a`.
    fn tenant_machine(&self, name: &str, spec: &Value) {
        succeed(&self.run(&["create", "--as=tenant"], &machine("tenant-a", name, spec)));
    }

    /// Whether the tenant may do this in a namespace.
    fn tenant_may(&self, verb: &str, what: &str, namespace: &str) -> bool {
        let asked = ["auth", "can-i", verb, what, "-n", namespace, "--as=tenant"];
        self.server.kubectl(&asked).unwrap().status.success()
    }

    fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let found = ["get", kind, "-n", namespace, name, "-o", "json", "--ignore-not-found"];
        serde_json::from_str(&self.kubectl(&found)).ok()
    }

    /// Waits until an object is as `look` wants it.
    async fn until<T>(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        look: impl Fn(Option<&Value>) -> Option<T>,
    ) -> T {
        let limit = Instant::now() + LIMIT;
        loop {
            let found = self.get(kind, namespace, name);
            if let Some(seen) = look(found.as_ref()) {
                return seen;
            }
            let log = std::fs::read_to_string(self.log.path()).unwrap();
            let tail: Vec<&str> = log.lines().rev().take(10).collect();
            let is_waiting = Instant::now() < limit && self.operators.is_running();
            assert!(is_waiting, "{kind} {namespace}/{name}: {found:#?}\n{}", tail.join("\n"));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn until_present(&self, kind: &str, namespace: &str, name: &str) -> Value {
        self.until(kind, namespace, name, |found| Some(found?.clone())).await
    }

    /// Waits until the Ready condition of a Machine has this reason; returns its message.
    async fn refused(&self, namespace: &str, name: &str, reason: &str) -> String {
        self.until("machine", namespace, name, |found| {
            let found = found?;
            let conditions = found.pointer("/status/conditions")?.as_array()?;
            let ready = conditions.iter().find(|condition| condition["type"] == "Ready")?;
            let is_current = ready["observedGeneration"] == found["metadata"]["generation"];
            let is_refused = is_current && ready["status"] == "False" && ready["reason"] == reason;
            is_refused.then(|| ready["message"].as_str().unwrap_or_default().to_owned())
        })
        .await
    }

    /// Asserts that a namespace has no object that a machine consists of, and does not get one.
    async fn stays_empty(&self, namespace: &str) {
        tokio::time::sleep(PATIENCE).await;
        let kinds = "virtualmachines,datavolumes,persistentvolumeclaims,network-attachment-definitions";
        assert_eq!(self.kubectl(&["get", kinds, "-n", namespace, "-o", "name"]), "");
        assert_eq!(self.kubectl(&["get", "secrets", "-n", namespace, "-o", "name"]), "");
    }
}

fn machine(namespace: &str, name: &str, spec: &Value) -> Value {
    ours("Machine", namespace, name, spec)
}

fn ours(kind: &str, namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "vitistack.io/v1alpha1", "kind": kind,
        "metadata": { "name": name, "namespace": namespace }, "spec": spec,
    })
}

/// A reference to the provider that all tenants share.
fn shared() -> Value {
    json!({ "name": "shared", "namespace": "infra" })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_attacks_of_a_tenant_have_no_effect() {
    let cluster = Cluster::start().await;
    a_tenant_cannot_write_what_the_operators_act_on(&cluster).await;
    a_provider_cannot_name_the_namespace_of_another_tenant(&cluster).await;
    a_provider_of_a_tenant_does_not_change_the_default_of_others(&cluster).await;

    let limits = json!({
        "type": "kubevirt", "kubevirt": { "namespace": "virtual-machines" },
        "allowedBridges": [{ "bridge": "br0", "vlans": [100] }],
    });
    cluster.create(&ours("MachineProvider", "infra", "shared", &limits));
    let allow = "vitistack.io/allow-references-from=*";
    cluster.kubectl(&["annotate", "machineprovider", "-n", "infra", "shared", allow]);
    the_disk_of_another_tenant_cannot_be_copied(&cluster).await;
    images_do_not_come_from_addresses_of_the_cluster(&cluster).await;
    a_bridge_that_the_provider_does_not_list_is_refused(&cluster).await;

    an_admitted_machine_does_not_grow_past_the_quota(&cluster).await;
    a_tenant_cannot_remove_the_finalizer_of_a_machine(&cluster);
    only_those_who_run_the_platform_release_a_machine(&cluster).await;
}

/// C1: the roles.
async fn a_tenant_cannot_write_what_the_operators_act_on(cluster: &Cluster) {
    // The controller manager aggregates roles a moment after they were created.
    let limit = Instant::now() + LIMIT;
    while !cluster.tenant_may("create", "machines.vitistack.io", "tenant-a") {
        assert!(Instant::now() < limit, "the tenant never got the role vitistack-editor");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for verb in ["create", "update", "patch", "delete"] {
        for kind in ["machineproviders", "datacenters", "networkconfigurations", "machineclasses"] {
            assert!(!cluster.tenant_may(verb, &format!("{kind}.vitistack.io"), "tenant-a"), "{verb} {kind}");
        }
        assert!(!cluster.tenant_may(verb, "machines.vitistack.io", "victim"), "{verb} machines of others");
    }
    assert!(cluster.tenant_may("get", "machineproviders.vitistack.io", "tenant-a"), "they can be viewed");
}

/// C1: a provider from before the roles were split, or of a careless administrator.
async fn a_provider_cannot_name_the_namespace_of_another_tenant(cluster: &Cluster) {
    let evil = json!({ "type": "kubevirt", "kubevirt": { "namespace": "victim" } });
    cluster.create(&ours("MachineProvider", "tenant-a", "evil", &evil));
    let spec = json!({
        "template": "small", "providerRef": { "name": "evil" },
        "disks": [{ "name": "loot", "size": "1Gi", "source": { "claim": "victim-database" } }],
        "cloudInit": { "userData": "#cloud-config", "networkData": "version: 2" },
    });
    cluster.tenant_machine("thief", &spec);

    let message = cluster.refused("tenant-a", "thief", "ReferenceNotPermitted").await;
    let command = "kubectl annotate namespace victim vitistack.io/allow-references-from=tenant-a";
    assert!(message.contains(command), "{message}");
    assert!(!message.contains("victim-database"), "{message}");
    cluster.stays_empty("victim").await;
    let report = transcript_of(&cluster.server.kubeconfig_path(), "doctor");
    assert!(report.contains(command), "{report}");

    // The owner of the namespace can allow it, and take that back: the machine keeps running and can be deleted.
    let plain = json!({ "template": "small", "providerRef": { "name": "evil" } });
    cluster.tenant_machine("guest", &plain);
    cluster.refused("tenant-a", "guest", "ReferenceNotPermitted").await;
    cluster.kubectl(&command.split(' ').skip(1).collect::<Vec<_>>());
    cluster.until_present("virtualmachine", "victim", "guest").await;

    cluster.kubectl(&["annotate", "namespace", "victim", "vitistack.io/allow-references-from-"]);
    let grow = json!({ "spec": { "resources": { "cpu": { "cores": 4 } } } }).to_string();
    let patch = ["patch", "--as=tenant", "machine", "-n", "tenant-a", "guest", "--type=merge", "-p", &grow];
    cluster.kubectl(&patch);
    cluster.refused("tenant-a", "guest", "ReferenceNotPermitted").await;
    tokio::time::sleep(PATIENCE).await;
    let unchanged = cluster.get("virtualmachine", "victim", "guest").unwrap();
    assert_eq!(unchanged.pointer("/spec/template/spec/domain/cpu/cores"), Some(&json!(1)), "{unchanged:#}");

    cluster.kubectl(&["delete", "--as=tenant", "machine", "-n", "tenant-a", "guest", "thief"]);
    cluster.until("virtualmachine", "victim", "guest", |found| found.is_none().then_some(())).await;
}

/// M4: the provider of the tenant exists since the attack before.
async fn a_provider_of_a_tenant_does_not_change_the_default_of_others(cluster: &Cluster) {
    cluster.create(&machine("bystander", "plain", &json!({ "template": "small" })));
    cluster.until_present("virtualmachine", "bystander", "plain").await;
}

/// C2.
async fn the_disk_of_another_tenant_cannot_be_copied(cluster: &Cluster) {
    let victim = json!({ "template": "small", "providerRef": shared() });
    cluster.create(&machine("victim", "db-1", &victim));
    cluster.until_present("persistentvolumeclaim", "virtual-machines", "db-1-root").await;
    cluster.create(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "golden", "namespace": "virtual-machines" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    }));

    let mut messages = Vec::new();
    for (name, claim) in [("clone-other", "db-1-root"), ("clone-golden", "golden"), ("clone-none", "nothing")]
    {
        let loot = json!([{ "name": "loot", "size": "20Gi", "source": { "claim": claim } }]);
        let spec = json!({ "template": "small", "providerRef": shared(), "disks": loot });
        cluster.tenant_machine(name, &spec);
        messages.push(cluster.refused("tenant-a", name, "SourceNotFound").await.replace(claim, "CLAIM"));
    }
    messages.dedup();
    assert_eq!(messages.len(), 1, "the words tell what exists: {messages:#?}");
    assert!(messages[0].contains("vitistack.io/allow-references-from=tenant-a"), "{messages:#?}");
    tokio::time::sleep(PATIENCE).await;
    let volumes = cluster.kubectl(&["get", "datavolumes", "-n", "virtual-machines", "-o", "name"]);
    assert_eq!(volumes, "");

    let allow = "vitistack.io/allow-references-from=tenant-a";
    cluster.kubectl(&["annotate", "pvc", "-n", "virtual-machines", "golden", allow]);
    cluster.until_present("datavolume", "virtual-machines", "clone-golden-loot").await;
}

/// M2: importers run inside the cluster.
async fn images_do_not_come_from_addresses_of_the_cluster(cluster: &Cluster) {
    let urls = [
        "http://169.254.169.254/latest/meta-data",
        "http://127.0.0.1:10255/pods",
        "https://kubernetes.default.svc/api",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://2852039166/",
    ];
    for (number, url) in urls.iter().enumerate() {
        let name = format!("import-{number}");
        let disk = json!([{ "name": "loot", "size": "1Gi", "source": { "url": url } }]);
        cluster
            .tenant_machine(&name, &json!({ "template": "small", "providerRef": shared(), "disks": disk }));
        let message = cluster.refused("tenant-a", &name, "InvalidSpec").await;
        assert!(message.contains("disks[loot].source.url"), "{message}");
        assert_eq!(cluster.get("datavolume", "virtual-machines", &format!("{name}-loot")), None, "{url}");
    }
}

/// M2: bridges of the hosts.
async fn a_bridge_that_the_provider_does_not_list_is_refused(cluster: &Cluster) {
    for (name, bridge, vlan) in [("mgmt", "br-mgmt", 1), ("other-vlan", "br0", 1)] {
        let network = json!({ "bridge": bridge, "vlan": vlan });
        cluster.create(&ours("NetworkConfiguration", "tenant-a", name, &network));
        let networks = json!([{ "name": "eth0", "networkName": name }]);
        let spec = json!({ "template": "small", "providerRef": shared(), "networks": networks });
        cluster.tenant_machine(&format!("on-{name}"), &spec);
        let message = cluster.refused("tenant-a", &format!("on-{name}"), "InvalidSpec").await;
        assert!(message.contains(bridge) && message.contains("allowedBridges"), "{message}");
    }
    let attachments = ["get", "network-attachment-definitions", "-n", "virtual-machines", "-o", "name"];
    assert_eq!(cluster.kubectl(&attachments), "");
}

/// H1.
async fn an_admitted_machine_does_not_grow_past_the_quota(cluster: &Cluster) {
    let quotas = json!({ "maxCpu": 4, "maxMemory": "8Gi", "maxStorage": "30Gi" });
    let datacenter = json!({
        "region": "west", "resourceQuotas": quotas,
        "machineProviders": [{ "name": "shared", "priority": 1 }],
    });
    cluster.create(&ours("Datacenter", "infra", "west", &datacenter));
    let allow = "vitistack.io/allow-references-from=*";
    cluster.kubectl(&["annotate", "datacenter", "-n", "infra", "west", allow]);
    let west = json!({ "name": "west", "namespace": "infra" });
    cluster.tenant_machine("grow", &json!({ "template": "small", "datacenterRef": west }));
    cluster.until_present("virtualmachine", "virtual-machines", "grow").await;

    let patch = |spec: &Value| {
        let patch = json!({ "spec": spec }).to_string();
        let tenant =
            ["patch", "--as=tenant", "machine", "-n", "tenant-a", "grow", "--type=merge", "-p", &patch];
        cluster.kubectl(&tenant);
    };
    patch(&json!({
        "resources": { "cpu": { "cores": 64 }, "memory": { "size": "512Gi" } },
        "disks": [{ "name": "huge", "size": "100Ti" }],
    }));
    let message = cluster.refused("tenant-a", "grow", "QuotaExceeded").await;
    assert!(message.contains("resourceQuotas.maxCpu is 4"), "{message}");
    tokio::time::sleep(PATIENCE).await;
    let cores = |found: &Value| found.pointer("/spec/template/spec/domain/cpu/cores").cloned();
    let kept = cluster.get("virtualmachine", "virtual-machines", "grow").unwrap();
    assert_eq!(cores(&kept), Some(json!(1)), "{kept:#}");
    assert_eq!(cluster.get("persistentvolumeclaim", "virtual-machines", "grow-huge"), None);
    let used = cluster.get("datacenter", "infra", "west").unwrap();
    assert_eq!(used.pointer("/status/used/cpu"), Some(&json!(1)), "{used:#}");

    // What fits is granted.
    patch(&json!({ "resources": { "cpu": { "cores": 4 }, "memory": null }, "disks": null }));
    cluster
        .until("virtualmachine", "virtual-machines", "grow", |found| {
            (cores(found?) == Some(json!(4))).then_some(())
        })
        .await;

    // A quota that is lowered takes nothing away, and says so.
    let lower = json!({ "spec": { "resourceQuotas": { "maxCpu": 2 } } }).to_string();
    cluster.kubectl(&["patch", "datacenter", "-n", "infra", "west", "--type=merge", "-p", &lower]);
    cluster
        .until("datacenter", "infra", "west", |found| {
            let conditions = found?.pointer("/status/conditions")?.as_array()?.clone();
            let over = conditions.into_iter().find(|condition| condition["type"] == "WithinQuotas")?;
            (over["status"] == "False").then_some(())
        })
        .await;
}

/// H2: a machine without its finalizer would run on and count nowhere.
fn a_tenant_cannot_remove_the_finalizer_of_a_machine(cluster: &Cluster) {
    let machine = cluster.get("machine", "tenant-a", "grow").unwrap();
    assert_eq!(machine["metadata"]["finalizers"], json!(["machine.vitistack.io/cleanup"]));
    let start = ["patch", "machine", "-n", "tenant-a", "grow", "--type=merge", "-p"];
    let remove = r#"{"metadata":{"finalizers":null}}"#;
    let refused = cluster.server.kubectl(&[&start[..], &[remove, "--as=tenant"]].concat()).unwrap();
    let report = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && report.contains("machine.vitistack.io/cleanup"), "{report}");

    let other = r#"{"metadata":{"finalizers":["machine.vitistack.io/cleanup","example.com/backup"]}}"#;
    cluster.kubectl(&[&start[..], &[other, "--as=tenant"]].concat());
    let annotated =
        r#"{"metadata":{"annotations":{"vitistack.io/admitted":"cpu=64,memory=1Ti,storage=1Ti"}}}"#;
    let refused = cluster.server.kubectl(&[&start[..], &[annotated, "--as=tenant"]].concat()).unwrap();
    assert!(!refused.status.success(), "the record of what was admitted is reserved for operators");
    // An administrator can always get out.
    cluster.kubectl(&[&start[..], &[remove]].concat());
}

/// H2: `release` removes the finalizer, too.
async fn only_those_who_run_the_platform_release_a_machine(cluster: &Cluster) {
    cluster
        .until("machine", "tenant-a", "grow", |found| {
            let finalizers = found?.pointer("/metadata/finalizers")?.as_array()?;
            finalizers.contains(&json!("machine.vitistack.io/cleanup")).then_some(())
        })
        .await;
    let release = |user: &str| {
        transcript_of(&cluster.server.kubeconfig_of(user), "release machine/grow --namespace tenant-a")
    };
    let refused = release(TENANT);
    assert!(refused.ends_with("(exit 1)"), "{refused}");
    for part in ["the verb update on machines/release", "ClusterRole vitistack-platform-editor"] {
        assert!(refused.contains(part), "{refused}");
    }
    let kept = cluster.get("machine", "tenant-a", "grow").unwrap();
    assert_eq!(kept.pointer("/metadata/annotations/vitistack.io~1paused"), None, "{kept:#}");

    let released = release(PLATFORM);
    assert!(released.ends_with("(exit 0)"), "{released}");
    assert_eq!(cluster.get("machine", "tenant-a", "grow"), None);
    assert!(cluster.get("virtualmachine", "virtual-machines", "grow").is_some(), "it runs on");
}
