//! Placement, quotas and failover.

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

use crate::placing::{Stage, datacenter, machine, machine_reason, placement, provider, reason};

async fn count(stage: &Stage, holds: impl Fn(&Machine) -> bool) -> usize {
    stage.machines().await.iter().filter(|machine| holds(machine)).count()
}

fn is_over(machine: &Machine) -> bool {
    placement(machine).is_none() && machine_reason(machine) == "QuotaExceeded"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_machines_at_once_the_quota_lets_ten_in_and_the_others_are_told() {
    let stage = Stage::new().await;
    stage.create(&provider("aws")).await;
    stage.create(&datacenter(&["aws"], Some(10))).await;
    // Before its provider answered, the Datacenter would tell the first Machines that nobody can take them.
    stage
        .until("the datacenter takes machines", async || {
            let west: Datacenter = stage.api().get("west").await.unwrap();
            reason(west.status.as_ref().map(|status| status.conditions.as_slice())) == "AsSpecified"
        })
        .await;
    let names: Vec<String> = (0..50).map(|number| format!("vm-{number:02}")).collect();
    join_all(names.iter().map(async |name| stage.create(&machine(name)).await)).await;
    stage
        .until("40 machines are told", async || {
            assert!(count(&stage, |machine| placement(machine).is_some()).await <= 10, "more than the quota");
            count(&stage, is_over).await == 40
        })
        .await;
    stage.until("10 are placed", async || count(&stage, |each| placement(each).is_some()).await == 10).await;
    stage.rests().await;
    // One first patch of the provider; two status of it and of the Datacenter, or three; a write for each Machine.
    assert!(stage.writes() <= 50 + 10, "{} writes", stage.writes());
    let events = stage.events("vm-00").await;
    assert_eq!(events.len(), 1, "{events:#?}");
    let west: Datacenter = stage.api().get("west").await.unwrap();
    assert_eq!(west.status.unwrap().used.unwrap().machines, 10);
    let aws: MachineProvider = stage.api().get("aws").await.unwrap();
    assert_eq!(aws.status.unwrap().used.unwrap().machines, 10);

    stage.patch::<Datacenter>("west", json!({"spec": {"resourceQuotas": {"maxMachines": 50}}})).await;
    stage.until("all are let in", async || count(&stage, |each| placement(each).is_some()).await == 50).await;
    let placed = stage.machine("vm-49").await;
    let annotations = placed.metadata.annotations.unwrap();
    assert_eq!(annotations[labels::IDENTITY], placed.metadata.uid.unwrap());
    assert_eq!(annotations[labels::PLACEMENT_REASON], "default/aws has priority 1");
    assert!(placed.metadata.finalizers.is_none(), "the finalizer is the backend's");
    stage.rests().await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ends_anywhere_lets_no_more_in() {
    let mut stage = Stage::new().await;
    stage.create(&provider("aws")).await;
    stage.create(&datacenter(&["aws"], Some(10))).await;
    for round in 0..4 {
        for number in 0..10 {
            stage.create(&machine(&format!("vm-{round}-{number}"))).await;
        }
        stage.stop().await;
        assert!(count(&stage, |machine| placement(machine).is_some()).await <= 10);
        stage.start();
    }
    stage.until("30 machines are told", async || count(&stage, is_over).await == 30).await;
    assert_eq!(count(&stage, |machine| placement(machine).is_some()).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_which_nothing_was_made_moves_when_its_provider_goes_away() {
    let stage = Stage::new().await;
    stage.create(&provider("aws")).await;
    stage.create(&provider("azure")).await;
    stage.create(&datacenter(&["aws", "azure"], None)).await;
    let is_on = async |name: &str, place: &str| placement(&stage.machine(name).await) == Some(place);
    let aws: Api<MachineProvider> = stage.api();
    stage
        .until("the first provider is ready", async || {
            let aws = aws.get("aws").await.unwrap();
            reason(aws.status.as_ref().map(|status| status.conditions.as_slice())) == "ProviderReady"
        })
        .await;
    stage.create(&machine("new")).await;
    stage.create(&machine("made")).await;
    stage.until("one is placed", async || is_on("made", "default/aws").await).await;
    stage.claim("made").await;
    stage.until("the other is placed", async || is_on("new", "default/aws").await).await;
    stage.patch::<MachineProvider>("aws", json!({"spec": {"simulated": {"unreachable": true}}})).await;
    stage.until("it moves", async || is_on("new", "default/azure").await).await;
    assert!(is_on("made", "default/aws").await, "what was made stays");
    let why = stage.machine("new").await.metadata.annotations.unwrap()[labels::PLACEMENT_REASON].clone();
    assert!(why.starts_with("instead of default/aws (it is not ready: it does not answer"), "{why}");
    stage.patch::<MachineProvider>("aws", json!({"spec": {"simulated": {"unreachable": false}}})).await;
    stage.rests().await;
    assert!(is_on("new", "default/azure").await, "it does not go back");
    let mut events = stage.events("new").await;
    events.sort();
    assert_eq!(events, ["Moved", "Placed"]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_waits_for_room_is_placed_when_another_one_goes() {
    let stage = Stage::woken_by_events_only().await;
    stage.create(&provider("aws")).await;
    stage.create(&datacenter(&["aws"], None)).await;
    for name in ["there", "vm"] {
        stage.create(&machine(name)).await;
        stage.until("it is placed", async || placement(&stage.machine(name).await).is_some()).await;
    }
    stage.claim("there").await;
    let status = json!({ "status": { "vmName": "there" } });
    let machines = stage.api::<Machine>();
    machines.patch_status("there", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let vm = stage.machine("vm").await;
    let used = usage_of(&vm, None).unwrap();
    let full = Some(Fullness { generation: 1, used });
    let note = pass_over(&vm, "default/aws", full, jiff::Timestamp::now());
    let handed_back = json!({ labels::PLACEMENT: null, labels::PASSED_OVER: note });
    stage.patch::<Machine>("vm", json!({ "metadata": { "annotations": handed_back } })).await;
    stage
        .until("it waits", async || machine_reason(&stage.machine("vm").await) == "InsufficientResources")
        .await;
    stage.patch::<Machine>("there", json!({"metadata": {"finalizers": null}})).await;
    machines.delete("there", &DeleteParams::default()).await.unwrap();
    stage.until("it has the room", async || placement(&stage.machine("vm").await).is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_only_others_hold_leaves_its_place_in_the_quota_at_once() {
    let stage = Stage::woken_by_events_only().await;
    stage.create(&provider("aws")).await;
    stage.create(&datacenter(&["aws"], Some(1))).await;
    stage.create(&machine("old")).await;
    stage.until("it is placed", async || placement(&stage.machine("old").await).is_some()).await;
    let held = json!([labels::MACHINE_CLEANUP, "example.com/backup"]);
    stage.patch::<Machine>("old", json!({ "metadata": { "finalizers": held } })).await;
    stage.api::<Machine>().delete("old", &DeleteParams::default()).await.unwrap();
    stage.create(&machine("next")).await;
    stage.until("it waits", async || is_over(&stage.machine("next").await)).await;
    // What the backend does once the real machine is gone.
    let left = json!({ "metadata": { "finalizers": ["example.com/backup"] } });
    stage.patch::<Machine>("old", left).await;
    stage.until("it is let in", async || placement(&stage.machine("next").await).is_some()).await;
    let told = async |used: u32| {
        let west = stage.api::<Datacenter>().get("west").await.unwrap();
        west.status.and_then(|status| status.used).is_some_and(|each| each.machines == used)
    };
    stage.until("the Datacenter says so", async || told(1).await).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_cannot_be_placed_is_told_why() {
    let stage = Stage::new().await;
    stage.create(&machine("orphan")).await;
    let told = async |name: &str, reason: &str| machine_reason(&stage.machine(name).await) == reason;
    stage.until("it has no Datacenter", async || told("orphan", "DatacenterNotFound").await).await;
    stage.create(&datacenter(&["aws"], None)).await;
    stage.until("there is no provider", async || told("orphan", "InsufficientResources").await).await;
    let mut unknown = machine("unknown");
    unknown.spec.template = Some("huge".to_owned());
    stage.create(&unknown).await;
    stage.until("there is no template", async || told("unknown", "TemplateNotFound").await).await;
    let mut paused = machine("paused");
    paused.metadata.annotations = Some([(labels::PAUSED.to_owned(), "true".to_owned())].into());
    stage.create(&paused).await;
    stage.until("it is paused", async || told("paused", "Paused").await).await;
    let mut stranger = machine("stranger");
    stranger.metadata.namespace = Some("kube-public".to_owned());
    stranger.spec.datacenter_ref = Some(ObjectReference::builder().name("west").namespace("default").build());
    let elsewhere: Api<Machine> = Api::namespaced(stage.client.clone(), "kube-public");
    elsewhere.create(&PostParams::default(), &stranger).await.unwrap();
    stage
        .until("it is not permitted", async || {
            machine_reason(&elsewhere.get("stranger").await.unwrap()) == "ReferenceNotPermitted"
        })
        .await;
    stage.create(&provider("aws")).await;
    stage.until("it is placed", async || placement(&stage.machine("orphan").await).is_some()).await;
    stage.rests().await;
    assert!(placement(&stage.machine("paused").await).is_none());
    let mut events = stage.events("orphan").await;
    events.sort();
    assert_eq!(events, ["DatacenterNotFound", "InsufficientResources", "Placed"]);
}

#[tokio::test(start_paused = true)]
async fn the_deployment_models_of_the_specification_work() {
    let stage = Stage::new().await;
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
                "Datacenter" => create::<Datacenter>(&stage, document).await,
                "Machine" => {
                    // Else the first provider that answers would get it, whatever its priority.
                    stage.until("every provider is ready", async || all_ready(&stage).await).await;
                    create::<Machine>(&stage, document).await;
                }
                _ => create::<MachineProvider>(&stage, document).await,
            }
        }
    }
    stage
        .until("every machine is placed", async || {
            let machines = stage.machines().await;
            machines.len() == 4 && machines.iter().all(|machine| placement(machine).is_some())
        })
        .await;
    stage.rests().await;
    let mut told = Vec::new();
    for machine in stage.machines().await {
        let annotations = machine.metadata.annotations.unwrap();
        let name = machine.metadata.name.unwrap();
        let provider = &annotations[labels::PLACEMENT];
        // Which zone depends on who of the two Datacenters that share the provider comes first.
        let zone = annotations.get(labels::ZONE).map_or("no zone", |_| "a zone");
        told.push(format!("{name} on {provider}, {zone}"));
    }
    for datacenter in stage.api::<Datacenter>().list(&ListParams::default()).await.unwrap() {
        let name = datacenter.metadata.name.unwrap();
        for Condition { type_, status, message, .. } in datacenter.status.unwrap().conditions {
            told.push(format!("{name}: {type_} {status}: {message}"));
        }
    }
    insta::assert_snapshot!(told.join("\n"));
}

async fn all_ready(stage: &Stage) -> bool {
    let providers = stage.api::<MachineProvider>().list(&ListParams::default()).await.unwrap();
    let told = |provider: &MachineProvider| {
        reason(provider.status.as_ref().map(|status| status.conditions.as_slice()))
    };
    providers.iter().all(|provider| told(provider) == "ProviderReady")
}

async fn create<K>(stage: &Stage, document: Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    stage.create::<K>(&serde_json::from_value(document).unwrap()).await;
}
