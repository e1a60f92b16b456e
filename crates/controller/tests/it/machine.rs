//! Machines on simulated providers, as a user sees them.

use std::time::Duration;

use kube::Client;
use serde_json::json;

use crate::stage::{Counted, Stage, ready};

async fn stage_with_provider() -> Stage {
    let stage = Stage::new().await;
    stage
        .create(
            "MachineProvider",
            "simulated-a",
            json!({ "type": "simulated", "simulated": { "latency": "20ms" } }),
        )
        .await;
    stage
}

fn small() -> serde_json::Value {
    json!({ "template": "small", "providerRef": { "name": "simulated-a" } })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_made_kept_and_deleted_with_few_writes() {
    let stage = stage_with_provider().await;
    let counted = Counted::new(&stage.server);
    let running = stage.run_with(Client::new(counted.clone(), "default"));
    stage.create("Machine", "vm", small()).await;
    let machine = stage.until("vm", |machine| ready(machine).0 == "Running").await;
    let status = machine.status.unwrap();
    assert_eq!(status.provider.unwrap().name, "simulated-a");
    assert_eq!(status.identity, machine.metadata.uid);
    assert!(counted.total() <= 3, "{:?}", counted.writes());
    let settled = counted.total();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(counted.total(), settled, "no write at rest over several resyncs: {:?}", counted.writes());
    stage.delete("Machine", "vm").await;
    stage.until_gone("vm").await;
    assert_eq!(counted.total(), settled + 1, "{:?}", counted.writes());
    running.stop().await;
}
