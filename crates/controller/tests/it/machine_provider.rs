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

use crate::placing::{Stage, datacenter, machine, placement, provider, reason};

async fn told(stage: &Stage, name: &str) -> String {
    let provider = stage.api::<MachineProvider>().get(name).await.unwrap();
    reason(provider.status.as_ref().map(|status| status.conditions.as_slice()))
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_goes_away_and_comes_back_is_told_once_each() {
    let stage = Stage::new().await;
    stage.create(&provider("aws")).await;
    stage.until("it answers", async || told(&stage, "aws").await == "ProviderReady").await;
    stage.rests().await;
    assert_eq!(stage.writes(), 2, "the finalizer and one status");
    stage.patch::<MachineProvider>("aws", json!({"spec": {"simulated": {"unreachable": true}}})).await;
    stage.until("it is away", async || told(&stage, "aws").await == "ProviderUnreachable").await;
    stage.patch::<MachineProvider>("aws", json!({"spec": {"simulated": null}})).await;
    stage.until("it is back", async || told(&stage, "aws").await == "ProviderReady").await;
    stage.rests().await;
    let mut events = stage.events("aws").await;
    events.sort();
    assert_eq!(events, ["ProviderReady", "ProviderUnreachable"], "what was told before is not told again");
}

#[tokio::test(start_paused = true)]
async fn credentials_that_are_missing_are_told_until_they_are_there() {
    let stage = Stage::new().await;
    let mut guarded = provider("guarded");
    let secret_ref = SecretKeyReference::builder().name("login").key("token").build();
    guarded.spec.credentials = Some(ProviderCredentials { secret_ref });
    stage.create(&guarded).await;
    stage.until("there is no Secret", async || told(&stage, "guarded").await == "SecretNotFound").await;
    let secret = |key: &str| Secret {
        metadata: ObjectMeta { name: Some("login".to_owned()), ..ObjectMeta::default() },
        data: Some([(key.to_owned(), ByteString(b"secret".to_vec()))].into()),
        ..Secret::default()
    };
    stage.create(&secret("password")).await;
    stage.until("there is no key", async || told(&stage, "guarded").await == "SecretKeyNotFound").await;
    stage.patch::<Secret>("login", serde_json::to_value(secret("token")).unwrap()).await;
    stage.until("it is ready", async || told(&stage, "guarded").await == "ProviderReady").await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_stays_while_machines_are_on_it() {
    let stage = Stage::new().await;
    stage.create(&provider("aws")).await;
    stage.create(&datacenter(&["aws"], None)).await;
    stage.create(&machine("made")).await;
    stage.create(&machine("placed")).await;
    for name in ["made", "placed"] {
        stage.until("it is placed", async || placement(&stage.machine(name).await).is_some()).await;
    }
    stage.claim("made").await;
    stage.api::<MachineProvider>().delete("aws", &DeleteParams::default()).await.unwrap();
    stage.until("it waits", async || told(&stage, "aws").await == "Deleting").await;
    stage
        .until("what was only placed there is taken back", async || {
            placement(&stage.machine("placed").await).is_none()
        })
        .await;
    stage.rests().await;
    let aws = stage.api::<MachineProvider>().get("aws").await.unwrap();
    assert_eq!(aws.metadata.finalizers.unwrap(), [labels::PROVIDER_IN_USE]);
    let conditions = aws.status.unwrap().conditions;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!(
        ready.message,
        "it is being deleted and waits for 1 machine that is on it: delete default/made"
    );
    stage.patch::<Machine>("made", json!({"metadata": {"finalizers": null}})).await;
    stage.api::<Machine>().delete("made", &DeleteParams::default()).await.unwrap();
    stage
        .until("it goes", async || stage.api::<MachineProvider>().get_opt("aws").await.unwrap().is_none())
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_does_not_wait_for_a_machine_that_only_others_hold() {
    let stage = Stage::new().await;
    stage.create(&provider("aws")).await;
    let mut adopted = machine("adopted");
    let place = (labels::PLACEMENT.to_owned(), "default/aws".to_owned());
    // It came with the identity of what was made before it was restored.
    adopted.metadata.annotations = Some([place, (labels::IDENTITY.to_owned(), BEFORE.to_owned())].into());
    adopted.metadata.finalizers =
        Some(vec![labels::MACHINE_CLEANUP.to_owned(), "example.com/backup".to_owned()]);
    stage.create(&adopted).await;
    let is_held = async || {
        let finalizers = stage.api::<MachineProvider>().get("aws").await.unwrap().metadata.finalizers;
        finalizers.is_some_and(|all| all.iter().any(|each| each == labels::PROVIDER_IN_USE))
    };
    stage.until("it is held", is_held).await;
    stage.api::<Machine>().delete("adopted", &DeleteParams::default()).await.unwrap();
    stage.api::<MachineProvider>().delete("aws", &DeleteParams::default()).await.unwrap();
    stage.until("it waits", async || told(&stage, "aws").await == "Deleting").await;
    stage.patch::<Machine>("adopted", json!({"metadata": {"finalizers": ["example.com/backup"]}})).await;
    stage.until("it goes", async || is_gone(&stage, "aws").await).await;
}

/// The UID that a restored object had before.
const BEFORE: &str = "11111111-2222-3333-4444-555555555555";

async fn is_gone(stage: &Stage, name: &str) -> bool {
    stage.api::<MachineProvider>().get_opt(name).await.unwrap().is_none()
}

#[tokio::test(start_paused = true)]
async fn the_world_of_a_simulated_provider_goes_with_it() {
    let stage = Stage::new().await;
    let mut restored = provider("restored");
    restored.annotations_mut().insert(labels::IDENTITY.to_owned(), BEFORE.to_owned());
    for provider in [provider("aws"), restored, provider("other")] {
        let provider = stage.create(&provider).await;
        (stage.stores())(&provider).append(0, b"record".to_vec()).await.unwrap();
    }
    let worlds = async || stage.api::<ConfigMap>().list(&ListParams::default()).await.unwrap().items.len();
    assert_eq!(worlds().await, 6, "a head and a record each");
    for name in ["aws", "restored"] {
        stage.until("it answers", async || told(&stage, name).await == "ProviderReady").await;
        stage.api::<MachineProvider>().delete(name, &DeleteParams::default()).await.unwrap();
        stage.until("it goes", async || is_gone(&stage, name).await).await;
    }
    assert_eq!(worlds().await, 2, "those of the provider that stays");
}

#[tokio::test(start_paused = true)]
async fn a_provider_stays_while_a_restored_machine_that_nobody_adopted_yet_is_on_it() {
    let stage = Stage::new().await;
    let provider = stage.create(&provider("aws")).await;
    (stage.stores())(&provider).append(0, b"record".to_vec()).await.unwrap();
    let mut restored = machine("restored");
    restored.annotations_mut().insert(labels::IDENTITY.to_owned(), BEFORE.to_owned());
    restored.annotations_mut().insert(labels::PLACEMENT.to_owned(), "default/aws".to_owned());
    stage.create(&restored).await;
    stage.until("it answers", async || told(&stage, "aws").await == "ProviderReady").await;
    stage.api::<MachineProvider>().delete("aws", &DeleteParams::default()).await.unwrap();
    stage.until("it waits", async || told(&stage, "aws").await == "Deleting").await;
    assert_eq!(stage.api::<ConfigMap>().list(&ListParams::default()).await.unwrap().items.len(), 2);
    stage.api::<Machine>().delete("restored", &DeleteParams::default()).await.unwrap();
    stage.until("it goes", async || is_gone(&stage, "aws").await).await;
}

#[tokio::test(start_paused = true)]
async fn a_restored_machine_stays_where_it_was_made_whatever_comes_first() {
    let stage = Stage::new().await;
    let place = async || placement(&stage.machine("restored").await).map(ToOwned::to_owned);
    let mut restored = machine("restored");
    restored.annotations_mut().insert(labels::IDENTITY.to_owned(), BEFORE.to_owned());
    restored.annotations_mut().insert(labels::PLACEMENT.to_owned(), "default/late".to_owned());
    stage.create(&restored).await;
    stage.create(&datacenter(&["early", "late"], None)).await;
    stage.create(&provider("early")).await;
    stage.until("it answers", async || told(&stage, "early").await == "ProviderReady").await;
    let uid = stage.machine("restored").await.metadata.uid;
    stage.patch::<Machine>("restored", json!({"metadata": {"annotations": {labels::ADOPTED: uid}}})).await;
    stage.rests().await;
    assert_eq!(place().await.as_deref(), Some("default/late"), "its provider is still to come");
    stage.create(&provider("late")).await;
    stage.until("it answers", async || told(&stage, "late").await == "ProviderReady").await;
    stage.rests().await;
    assert_eq!(place().await.as_deref(), Some("default/late"));
}
