//! Quotas hold for the whole life of a Machine.

use futures::future::join_all;
use serde_json::json;
use vitistack_types::{
    labels,
    v1alpha1::{Datacenter, Machine},
};

use crate::placement_cluster::{PlacementCluster, datacenter, machine, placement, provider};

/// The virtual CPUs that all Machines were admitted with, as the records say.
async fn admitted_cpus(cluster: &PlacementCluster) -> Vec<u32> {
    let cpus = |machine: &Machine| -> Option<u32> {
        let record = machine.metadata.annotations.as_ref()?.get(labels::ADMITTED)?;
        record.strip_prefix("cpu=")?.split(',').next()?.parse().ok()
    };
    cluster.machines().await.iter().filter_map(cpus).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_that_grow_at_once_stay_within_the_quota() {
    let cluster = PlacementCluster::without_resync().await;
    cluster.create(&provider("aws")).await;
    cluster.create(&datacenter(&["aws"], None)).await;
    let quota = |cpu: u32| json!({ "spec": { "resourceQuotas": { "maxCpu": cpu } } });
    cluster.patch::<Datacenter>("west", quota(20)).await;
    let names: Vec<String> = (0..10).map(|number| format!("vm-{number}")).collect();
    join_all(names.iter().map(async |name| cluster.create(&machine(name)).await)).await;
    cluster
        .wait_until("all Machines are placed", async || {
            cluster.machines().await.iter().filter(|each| placement(each).is_some()).count() == 10
        })
        .await;
    assert_eq!(admitted_cpus(&cluster).await, [1; 10]);

    let size = |cores: u32| json!({ "spec": { "resources": { "cpu": { "cores": cores } } } });
    join_all(names.iter().map(|name| cluster.patch::<Machine>(name, size(3)))).await;
    cluster
        .wait_until("half of them have grown", async || {
            let cpus = admitted_cpus(&cluster).await;
            assert!(cpus.iter().sum::<u32>() <= 20, "more than the quota: {cpus:?}");
            cpus.iter().sum::<u32>() == 20
        })
        .await;
    cluster.wait_until_quiet().await;
    let west: Datacenter = cluster.api().get("west").await.unwrap();
    assert_eq!(west.status.unwrap().used.unwrap().cpu, 20);

    // What one gives back another gets, and none takes it twice.
    let grown = cluster.machines().await;
    let grown = grown
        .iter()
        .find(|each| each.metadata.annotations.as_ref().unwrap()[labels::ADMITTED].starts_with("cpu=3"));
    let shrinking = grown.unwrap().metadata.name.clone().unwrap();
    cluster.patch::<Machine>(&shrinking, size(1)).await;
    cluster.patch::<Machine>(&shrinking, size(64)).await;
    cluster.wait_until_quiet().await;
    assert!(admitted_cpus(&cluster).await.iter().sum::<u32>() <= 20);

    // A quota that is lowered takes nothing away, and the Datacenter reports it.
    cluster.patch::<Datacenter>("west", quota(5)).await;
    cluster
        .wait_until("the Datacenter reports that its machines use too much", async || {
            let west: Datacenter = cluster.api().get("west").await.unwrap();
            let conditions = west.status.unwrap().conditions;
            conditions.iter().any(|each| each.type_ == "WithinQuotas" && each.status == "False")
        })
        .await;
}
