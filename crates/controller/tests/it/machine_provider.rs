//! Health, credentials and deletion of providers.

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::api::{DeleteParams, ObjectMeta};
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
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
