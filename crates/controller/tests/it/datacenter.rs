//! Placement, quotas and failover of Datacenters.

use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use vitistack_plan::datacenter::{Fullness, pass_over, usage_of};
use vitistack_types::{
    ObjectReference, labels, samples,
    v1alpha1::{Datacenter, Machine, MachineProvider},
};

use crate::placement_cluster::{
    PlacementCluster, datacenter, machine, machine_reason, placement, provider, reason,
};

async fn count(cluster: &PlacementCluster, holds: impl Fn(&Machine) -> bool) -> usize {
    cluster.machines().await.iter().filter(|machine| holds(machine)).count()
}

fn is_over_quota(machine: &Machine) -> bool {
    placement(machine).is_none() && machine_reason(machine) == "QuotaExceeded"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_of_ten_admits_ten_of_fifty_machines_and_refuses_the_others() {
    let cluster = PlacementCluster::new().await;
    cluster.create(&provider("aws")).await;
    cluster.create(&datacenter(&["aws"], Some(10))).await;
    // Before its provider is ready, the Datacenter would refuse the first Machines for lack of capacity.
    cluster
        .wait_until("the Datacenter is ready", async || {
            let west: Datacenter = cluster.api().get("west").await.unwrap();
            reason(west.status.as_ref().map(|status| status.conditions.as_slice())) == "AsSpecified"
        })
        .await;
    let names: Vec<String> = (0..50).map(|number| format!("vm-{number:02}")).collect();
    join_all(names.iter().map(async |name| cluster.create(&machine(name)).await)).await;
    cluster
        .wait_until("40 Machines are refused", async || {
            assert!(
                count(&cluster, |machine| placement(machine).is_some()).await <= 10,
                "more than the quota"
            );
            count(&cluster, is_over_quota).await == 40
        })
        .await;
    cluster
        .wait_until("10 Machines are placed", async || {
            count(&cluster, |each| placement(each).is_some()).await == 10
        })
        .await;
    cluster.wait_until_quiet().await;
    // One write for each Machine, and a few for the finalizer and the status of the provider and the
    // Datacenter.
    assert!(cluster.writes() <= 50 + 10, "{} writes", cluster.writes());

    let events = cluster.events("vm-00").await;
    assert_eq!(events.len(), 1, "{events:#?}");

    let west: Datacenter = cluster.api().get("west").await.unwrap();
    assert_eq!(west.status.unwrap().used.unwrap().machines, 10);

    let aws: MachineProvider = cluster.api().get("aws").await.unwrap();
    assert_eq!(aws.status.unwrap().used.unwrap().machines, 10);

    cluster.patch::<Datacenter>("west", json!({"spec": {"resourceQuotas": {"maxMachines": 50}}})).await;
    cluster
        .wait_until("all Machines are placed", async || {
            count(&cluster, |each| placement(each).is_some()).await == 50
        })
        .await;
    let placed = cluster.machine("vm-49").await;
    let annotations = placed.metadata.annotations.unwrap();
    assert_eq!(annotations[labels::IDENTITY], placed.metadata.uid.unwrap());
    assert_eq!(annotations[labels::PLACEMENT_REASON], "Placed on default/aws (priority 1)");
    assert!(placed.metadata.finalizers.is_none(), "the backend adds the finalizer");

    cluster.wait_until_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn restarts_never_exceed_the_quota() {
    let mut cluster = PlacementCluster::new().await;
    cluster.create(&provider("aws")).await;
    cluster.create(&datacenter(&["aws"], Some(10))).await;
    for round in 0..4 {
        for number in 0..10 {
            cluster.create(&machine(&format!("vm-{round}-{number}"))).await;
        }
        cluster.stop().await;
        assert!(count(&cluster, |machine| placement(machine).is_some()).await <= 10);
        cluster.start();
    }
    cluster.wait_until("30 Machines are refused", async || count(&cluster, is_over_quota).await == 30).await;
    assert_eq!(count(&cluster, |machine| placement(machine).is_some()).await, 10);
}

#[tokio::test(start_paused = true)]
async fn an_unclaimed_machine_moves_away_from_an_unreachable_provider() {
    let cluster = PlacementCluster::new().await;
    cluster.create(&provider("aws")).await;
    cluster.create(&provider("azure")).await;
    cluster.create(&datacenter(&["aws", "azure"], None)).await;
    let is_on = async |name: &str, provider: &str| {
        placement(&cluster.machine(name).await).as_deref() == Some(provider)
    };
    let aws: Api<MachineProvider> = cluster.api();
    cluster
        .wait_until("the first provider is ready", async || {
            let aws = aws.get("aws").await.unwrap();
            reason(aws.status.as_ref().map(|status| status.conditions.as_slice())) == "ProviderReady"
        })
        .await;
    cluster.create(&machine("new")).await;
    cluster.create(&machine("claimed")).await;
    cluster.wait_until("the first Machine is placed", async || is_on("claimed", "default/aws").await).await;
    cluster.claim("claimed").await;
    cluster.wait_until("the second Machine is placed", async || is_on("new", "default/aws").await).await;
    cluster.patch::<MachineProvider>("aws", json!({"spec": {"simulated": {"unreachable": true}}})).await;
    cluster.wait_until("the unclaimed Machine moves", async || is_on("new", "default/azure").await).await;
    assert!(is_on("claimed", "default/aws").await, "a claimed Machine stays");

    let why = cluster.machine("new").await.metadata.annotations.unwrap()[labels::PLACEMENT_REASON].clone();
    let moved = "Placed on default/azure (priority 2), instead of default/aws (not ready: ";
    assert!(why.starts_with(moved), "{why}");

    cluster.patch::<MachineProvider>("aws", json!({"spec": {"simulated": {"unreachable": false}}})).await;
    cluster.wait_until_quiet().await;
    assert!(is_on("new", "default/azure").await, "it does not move back");

    let mut events = cluster.events("new").await;
    events.sort();
    assert_eq!(events, ["Moved", "Placed"]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_waiting_for_capacity_is_placed_when_another_is_deleted() {
    let cluster = PlacementCluster::without_resync().await;
    cluster.create(&provider("aws")).await;
    cluster.create(&datacenter(&["aws"], None)).await;
    for name in ["first", "vm"] {
        cluster.create(&machine(name)).await;
        cluster
            .wait_until("the Machine is placed", async || placement(&cluster.machine(name).await).is_some())
            .await;
    }
    cluster.claim("first").await;
    let status = json!({ "status": { "vmName": "first" } });
    let machines = cluster.api::<Machine>();
    machines.patch_status("first", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let vm = cluster.machine("vm").await;
    let used = usage_of(&vm, None).unwrap();
    let full = Some(Fullness { generation: 1, used });
    let note = pass_over(&vm, &"default/aws".parse().unwrap(), full, jiff::Timestamp::now());
    let returned = json!({ labels::PLACEMENT: null, labels::PASSED_OVER: note });
    cluster.patch::<Machine>("vm", json!({ "metadata": { "annotations": returned } })).await;
    cluster
        .wait_until("the Machine is refused", async || {
            machine_reason(&cluster.machine("vm").await) == "InsufficientResources"
        })
        .await;
    cluster.patch::<Machine>("first", json!({"metadata": {"finalizers": null}})).await;
    machines.delete("first", &DeleteParams::default()).await.unwrap();
    cluster
        .wait_until("the Machine is placed", async || placement(&cluster.machine("vm").await).is_some())
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_held_only_by_foreign_finalizers_frees_its_quota() {
    let cluster = PlacementCluster::without_resync().await;
    cluster.create(&provider("aws")).await;
    cluster.create(&datacenter(&["aws"], Some(1))).await;
    cluster.create(&machine("old")).await;
    cluster
        .wait_until("the Machine is placed", async || placement(&cluster.machine("old").await).is_some())
        .await;
    let held = json!([labels::MACHINE_CLEANUP, "example.com/backup"]);
    cluster.patch::<Machine>("old", json!({ "metadata": { "finalizers": held } })).await;
    cluster.api::<Machine>().delete("old", &DeleteParams::default()).await.unwrap();
    cluster.create(&machine("next")).await;
    cluster
        .wait_until("the Machine is refused", async || is_over_quota(&cluster.machine("next").await))
        .await;
    // As the backend does once the backing machine is deleted.
    let left = json!({ "metadata": { "finalizers": ["example.com/backup"] } });
    cluster.patch::<Machine>("old", left).await;
    cluster
        .wait_until("the next Machine is placed", async || {
            placement(&cluster.machine("next").await).is_some()
        })
        .await;
    let reports = async |used: u32| {
        let west = cluster.api::<Datacenter>().get("west").await.unwrap();
        west.status.and_then(|status| status.used).is_some_and(|each| each.machines == used)
    };
    cluster.wait_until("the Datacenter reports one Machine", async || reports(1).await).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_cannot_be_placed_reports_why() {
    let cluster = PlacementCluster::new().await;
    cluster.create(&machine("orphan")).await;
    let reports = async |name: &str, reason: &str| machine_reason(&cluster.machine(name).await) == reason;
    cluster
        .wait_until("the Datacenter is missing", async || reports("orphan", "DatacenterNotFound").await)
        .await;
    cluster.create(&datacenter(&["aws"], None)).await;
    cluster
        .wait_until("the provider is missing", async || reports("orphan", "InsufficientResources").await)
        .await;
    let mut unknown = machine("unknown");
    unknown.spec.template = Some("huge".to_owned());
    cluster.create(&unknown).await;
    cluster
        .wait_until("the template is missing", async || reports("unknown", "TemplateNotFound").await)
        .await;
    let mut paused = machine("paused");
    paused.metadata.annotations = Some([(labels::PAUSED.to_owned(), "true".to_owned())].into());
    cluster.create(&paused).await;
    cluster.wait_until("the Machine is paused", async || reports("paused", "Paused").await).await;
    let mut stranger = machine("stranger");
    stranger.metadata.namespace = Some("kube-public".to_owned());
    stranger.spec.datacenter_ref = Some(ObjectReference::builder().name("west").namespace("default").build());
    let elsewhere: Api<Machine> = Api::namespaced(cluster.client.clone(), "kube-public");
    elsewhere.create(&PostParams::default(), &stranger).await.unwrap();
    cluster
        .wait_until("the reference is refused", async || {
            machine_reason(&elsewhere.get("stranger").await.unwrap()) == "ReferenceNotPermitted"
        })
        .await;
    cluster.create(&provider("aws")).await;
    cluster
        .wait_until("the Machine is placed", async || placement(&cluster.machine("orphan").await).is_some())
        .await;
    cluster.wait_until_quiet().await;
    assert!(placement(&cluster.machine("paused").await).is_none());

    let mut events = cluster.events("orphan").await;
    events.sort();
    assert_eq!(events, ["DatacenterNotFound", "InsufficientResources", "Placed"]);
}

#[tokio::test(start_paused = true)]
async fn the_deployment_models_of_the_specification_work() {
    let cluster = PlacementCluster::new().await;
    let models = [
        "datacenter-single-cloud",
        "datacenter-multi-cloud",
        "datacenter-hybrid",
        "datacenter-edge",
        "deployment-models",
    ];
    for sample in samples().iter().filter(|sample| models.contains(&sample.name)) {
        let documents: Vec<Value> = serde_saphyr::from_multiple(sample.manifest).unwrap();
        for document in documents {
            match document["kind"].as_str().unwrap() {
                "Datacenter" => create::<Datacenter>(&cluster, document).await,
                "Machine" => {
                    // Otherwise the first provider that is ready would get it, regardless of its priority.
                    cluster.wait_until("every provider is ready", async || all_ready(&cluster).await).await;
                    create::<Machine>(&cluster, document).await;
                }
                _ => create::<MachineProvider>(&cluster, document).await,
            }
        }
    }
    cluster
        .wait_until("every machine is placed", async || {
            let machines = cluster.machines().await;
            machines.len() == 4 && machines.iter().all(|machine| placement(machine).is_some())
        })
        .await;
    cluster.wait_until_quiet().await;
    let mut lines = Vec::new();
    for machine in cluster.machines().await {
        let annotations = machine.metadata.annotations.unwrap();
        let name = machine.metadata.name.unwrap();
        let provider = &annotations[labels::PLACEMENT];
        // The zone depends on which of the two Datacenters that share the provider comes first.
        let zone = annotations.get(labels::ZONE).map_or("no zone", |_| "a zone");
        lines.push(format!("{name} on {provider}, {zone}"));
    }
    for datacenter in cluster.api::<Datacenter>().list(&ListParams::default()).await.unwrap() {
        let name = datacenter.metadata.name.unwrap();
        for Condition { type_, status, message, .. } in datacenter.status.unwrap().conditions {
            lines.push(format!("{name}: {type_} {status}: {message}"));
        }
    }

    insta::assert_snapshot!(lines.join("\n"));
}

async fn all_ready(cluster: &PlacementCluster) -> bool {
    let providers = cluster.api::<MachineProvider>().list(&ListParams::default()).await.unwrap();
    let ready_reason = |provider: &MachineProvider| {
        reason(provider.status.as_ref().map(|status| status.conditions.as_slice()))
    };
    providers.iter().all(|provider| ready_reason(provider) == "ProviderReady")
}

async fn create<K>(cluster: &PlacementCluster, document: Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    cluster.create::<K>(&serde_json::from_value(document).unwrap()).await;
}
