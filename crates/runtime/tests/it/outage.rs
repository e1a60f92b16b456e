//! An API server that goes away and comes back.

use serde_json::json;

use crate::stage::{Stage, new_server, says};

#[tokio::test]
async fn an_operator_outlives_its_api_server_and_goes_on() {
    let server = new_server().await;
    let stage = Stage::new(&server, "outage").await;
    let operator = stage.operator(&[]);
    stage.create("one", "before", 1).await;
    stage.await_ready("one", true).await;
    operator.await_probe("/readyz", 200).await;

    server.stop_api();
    says(&operator.await_probe("/readyz", 500).await, &["[-] cache widgets: trying again"]);
    assert!(operator.is_alive());
    operator.await_line("no longer leading: could not renew it in time").await;
    // One that starts during the outage waits for its end as well.
    let second = stage.operator(&[]);
    second.await_probe("/readyz", 500).await;
    second.await_probe("/healthz", 200).await;

    server.start_api().await.unwrap();
    stage.patch("one", json!({"text": "after"})).await;
    stage.await_text("one-0", "after").await;
    stage.await_ready("one", true).await;
    operator.await_probe("/readyz", 200).await;
    second.await_probe("/readyz", 200).await;
    operator.await_probe("/healthz", 200).await;
}
