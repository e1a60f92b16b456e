//! An operator without work.

use crate::stage::{OPERATOR, Stage, eventually, shared_server};

/// Returns the number of successful reconciles.
fn reconciles(metrics: &str) -> Option<u64> {
    let line = metrics.lines().find(|line| line.contains("outcomes_total") && line.contains("\"done\""))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[tokio::test]
async fn an_idle_operator_writes_only_its_lease() {
    let stage = Stage::new(shared_server().await, "steady").await;
    let operator = stage.operator(&[]);
    for name in ["one", "two", "three"] {
        stage.create(name, "hello", 2).await;
        stage.await_ready(name, true).await;
    }
    let requests = || {
        let mut requests = stage.server.audit().unwrap();
        requests.retain(|request| request.user == OPERATOR && request.namespace == stage.namespace);
        requests
    };
    let count = async || reconciles(&operator.metrics("http", None).await.1);
    let resyncs = async |rounds: u64| {
        let start = count().await.unwrap();
        eventually("resyncs", async || (count().await? >= start + 3 * rounds).then_some(())).await;
    };
    // One round for late events of the creation, then three rounds without requests.
    resyncs(1).await;
    let before = requests().len();
    resyncs(3).await;
    let after = requests();
    let noise: Vec<_> = after.iter().skip(before).filter(|request| request.resource != "leases").collect();
    assert!(noise.is_empty(), "{noise:?}");

    let writes: Vec<_> =
        after.iter().filter(|request| request.is_write() && request.name.starts_with("one")).collect();
    // The finalizer, two config maps, one status.
    assert_eq!(writes.len(), 4, "{writes:?}");
}
