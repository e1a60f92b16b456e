//! An outage of the API server.

use serde_json::json;

use crate::stage::{Stage, assert_contains, new_server};

#[tokio::test]
async fn an_operator_survives_an_outage_of_the_api_server() {
    let server = new_server().await;
    let stage = Stage::new(&server, "outage").await;
    let operator = stage.operator(&[]);
    stage.create("one", "before", 1).await;
    stage.await_ready("one", true).await;
    operator.await_probe("/readyz", 200).await;

    server.stop_api();
    let not_ready = operator.await_probe("/readyz", 500).await;
    assert_contains(&not_ready, &["[-] cache widgets\n"]);
    assert!(!not_ready.contains("127.0.0.1"), "{not_ready}");
    operator.await_line("failed to watch, retrying in").await;
    assert!(operator.is_alive());
    operator.await_line("stopped leading: the lease was not renewed in time").await;
    // A replica that starts during the outage waits for its end too.
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
