//! Health, credentials and deletion of providers.

use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, ObjectMeta},
};
use serde_json::json;
use vitistack_types::{
    SecretKeyReference, labels,
    v1alpha1::{Machine, MachineProvider, ProviderCredentials},
};

use crate::placement_cluster::{PlacementCluster, datacenter, machine, placement, provider, reason};

/// Returns the reason of the Ready condition of a provider.
async fn reason_of(cluster: &PlacementCluster, name: &str) -> String {
    let provider = cluster.api::<MachineProvider>().get(name).await.unwrap();
    reason(provider.status.as_ref().map(|status| status.conditions.as_slice()))
}

#[tokio::test(start_paused = true)]
async fn an_outage_and_its_end_are_reported_once_each() {
    let cluster = PlacementCluster::new().await;
    cluster.create(&provider("aws")).await;
    cluster
        .wait_until("the provider is ready", async || reason_of(&cluster, "aws").await == "ProviderReady")
        .await;
    cluster.wait_until_quiet().await;
    assert_eq!(cluster.writes(), 2, "the finalizer and one status");

    cluster.patch::<MachineProvider>("aws", json!({"spec": {"simulated": {"unreachable": true}}})).await;
    cluster
        .wait_until("the provider is unreachable", async || {
            reason_of(&cluster, "aws").await == "ProviderUnreachable"
        })
        .await;
    cluster.patch::<MachineProvider>("aws", json!({"spec": {"simulated": null}})).await;
    cluster
        .wait_until("the provider is ready again", async || {
            reason_of(&cluster, "aws").await == "ProviderReady"
        })
        .await;
    cluster.wait_until_quiet().await;
    let mut events = cluster.events("aws").await;
    events.sort();
    assert_eq!(events, ["ProviderReady", "ProviderUnreachable"], "nothing is reported twice");
}

#[tokio::test(start_paused = true)]
async fn missing_credentials_are_reported_until_they_exist() {
    let cluster = PlacementCluster::new().await;
    let mut guarded = provider("guarded");
    let secret_ref = SecretKeyReference::builder().name("login").key("token").build();
    guarded.spec.credentials = Some(ProviderCredentials { secret_ref });
    cluster.create(&guarded).await;
    cluster
        .wait_until("the Secret is missing", async || {
            reason_of(&cluster, "guarded").await == "SecretNotFound"
        })
        .await;
    let secret = |key: &str| Secret {
        metadata: ObjectMeta { name: Some("login".to_owned()), ..ObjectMeta::default() },
        data: Some([(key.to_owned(), ByteString(b"secret".to_vec()))].into()),
        ..Secret::default()
    };
    cluster.create(&secret("password")).await;
    cluster
        .wait_until("the key is missing", async || {
            reason_of(&cluster, "guarded").await == "SecretKeyNotFound"
        })
        .await;
    cluster.patch::<Secret>("login", serde_json::to_value(secret("token")).unwrap()).await;
    cluster
        .wait_until("the provider is ready", async || reason_of(&cluster, "guarded").await == "ProviderReady")
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_is_not_deleted_while_it_has_machines() {
    let cluster = PlacementCluster::new().await;
    cluster.create(&provider("aws")).await;
    cluster.create(&datacenter(&["aws"], None)).await;
    cluster.create(&machine("made")).await;
    cluster.create(&machine("placed")).await;
    for name in ["made", "placed"] {
        cluster
            .wait_until("the Machine is placed", async || placement(&cluster.machine(name).await).is_some())
            .await;
    }
    cluster.claim("made").await;
    cluster.api::<MachineProvider>().delete("aws", &DeleteParams::default()).await.unwrap();
    cluster.wait_until("the deletion waits", async || reason_of(&cluster, "aws").await == "Deleting").await;
    cluster
        .wait_until("the placement of the unclaimed Machine is withdrawn", async || {
            placement(&cluster.machine("placed").await).is_none()
        })
        .await;
    cluster.wait_until_quiet().await;
    let aws = cluster.api::<MachineProvider>().get("aws").await.unwrap();
    assert_eq!(aws.metadata.finalizers.unwrap(), [labels::PROVIDER_IN_USE]);

    let conditions = aws.status.unwrap().conditions;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!(ready.message, "Waiting for 1 machine on the provider to be deleted: delete default/made");

    cluster.patch::<Machine>("made", json!({"metadata": {"finalizers": null}})).await;
    cluster.api::<Machine>().delete("made", &DeleteParams::default()).await.unwrap();
    cluster
        .wait_until("the provider is deleted", async || {
            cluster.api::<MachineProvider>().get_opt("aws").await.unwrap().is_none()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_held_only_by_foreign_finalizers_does_not_block_its_provider() {
    let cluster = PlacementCluster::new().await;
    cluster.create(&provider("aws")).await;
    let mut adopted = machine("adopted");
    let placed = (labels::PLACEMENT.to_owned(), "default/aws".to_owned());
    // It carries the identity from before it was restored.
    adopted.metadata.annotations =
        Some([placed, (labels::IDENTITY.to_owned(), FORMER_UID.to_owned())].into());
    adopted.metadata.finalizers =
        Some(vec![labels::MACHINE_CLEANUP.to_owned(), "example.com/backup".to_owned()]);
    cluster.create(&adopted).await;
    let is_held = async || {
        let finalizers = cluster.api::<MachineProvider>().get("aws").await.unwrap().metadata.finalizers;
        finalizers.is_some_and(|all| all.iter().any(|each| each == labels::PROVIDER_IN_USE))
    };
    cluster.wait_until("the provider has its finalizer", is_held).await;
    cluster.api::<Machine>().delete("adopted", &DeleteParams::default()).await.unwrap();
    cluster.api::<MachineProvider>().delete("aws", &DeleteParams::default()).await.unwrap();
    cluster.wait_until("the deletion waits", async || reason_of(&cluster, "aws").await == "Deleting").await;
    cluster.patch::<Machine>("adopted", json!({"metadata": {"finalizers": ["example.com/backup"]}})).await;
    cluster.wait_until("the provider is deleted", async || is_gone(&cluster, "aws").await).await;
}

/// The UID of an object before it was restored.
const FORMER_UID: &str = "11111111-2222-3333-4444-555555555555";

async fn is_gone(cluster: &PlacementCluster, name: &str) -> bool {
    cluster.api::<MachineProvider>().get_opt(name).await.unwrap().is_none()
}

#[tokio::test(start_paused = true)]
async fn the_state_of_a_simulated_provider_is_deleted_with_it() {
    let cluster = PlacementCluster::new().await;
    let mut restored = provider("restored");
    restored.annotations_mut().insert(labels::IDENTITY.to_owned(), FORMER_UID.to_owned());
    for provider in [provider("aws"), restored, provider("other")] {
        let provider = cluster.create(&provider).await;
        (cluster.stores())(&provider).append(0, b"record".to_vec()).await.unwrap();
    }
    let config_maps =
        async || cluster.api::<ConfigMap>().list(&ListParams::default()).await.unwrap().items.len();
    assert_eq!(config_maps().await, 6, "a head and a record each");

    for name in ["aws", "restored"] {
        cluster
            .wait_until("the provider is ready", async || reason_of(&cluster, name).await == "ProviderReady")
            .await;
        cluster.api::<MachineProvider>().delete(name, &DeleteParams::default()).await.unwrap();
        cluster.wait_until("the provider is deleted", async || is_gone(&cluster, name).await).await;
    }
    assert_eq!(config_maps().await, 2, "only those of the remaining provider are left");
}

#[tokio::test(start_paused = true)]
async fn a_restored_machine_blocks_its_provider_before_it_is_adopted() {
    let cluster = PlacementCluster::new().await;
    let provider = cluster.create(&provider("aws")).await;
    (cluster.stores())(&provider).append(0, b"record".to_vec()).await.unwrap();
    let mut restored = machine("restored");
    restored.annotations_mut().insert(labels::IDENTITY.to_owned(), FORMER_UID.to_owned());
    restored.annotations_mut().insert(labels::PLACEMENT.to_owned(), "default/aws".to_owned());
    cluster.create(&restored).await;
    cluster
        .wait_until("the provider is ready", async || reason_of(&cluster, "aws").await == "ProviderReady")
        .await;
    cluster.api::<MachineProvider>().delete("aws", &DeleteParams::default()).await.unwrap();
    cluster.wait_until("the deletion waits", async || reason_of(&cluster, "aws").await == "Deleting").await;
    assert_eq!(cluster.api::<ConfigMap>().list(&ListParams::default()).await.unwrap().items.len(), 2);
    cluster.api::<Machine>().delete("restored", &DeleteParams::default()).await.unwrap();
    cluster.wait_until("the provider is deleted", async || is_gone(&cluster, "aws").await).await;
}

#[tokio::test(start_paused = true)]
async fn a_restored_machine_keeps_its_placement_until_its_provider_is_back() {
    let cluster = PlacementCluster::new().await;
    let placed_on = async || placement(&cluster.machine("restored").await);
    let mut restored = machine("restored");
    restored.annotations_mut().insert(labels::IDENTITY.to_owned(), FORMER_UID.to_owned());
    restored.annotations_mut().insert(labels::PLACEMENT.to_owned(), "default/late".to_owned());
    cluster.create(&restored).await;
    cluster.create(&datacenter(&["early", "late"], None)).await;
    cluster.create(&provider("early")).await;
    cluster
        .wait_until("the provider is ready", async || reason_of(&cluster, "early").await == "ProviderReady")
        .await;
    let uid = cluster.machine("restored").await.metadata.uid;
    cluster.patch::<Machine>("restored", json!({"metadata": {"annotations": {labels::ADOPTED: uid}}})).await;
    cluster.wait_until_quiet().await;
    assert_eq!(placed_on().await.as_deref(), Some("default/late"), "its provider does not exist yet");

    cluster.create(&provider("late")).await;
    cluster
        .wait_until("the provider is ready", async || reason_of(&cluster, "late").await == "ProviderReady")
        .await;
    cluster.wait_until_quiet().await;
    assert_eq!(placed_on().await.as_deref(), Some("default/late"));
}
