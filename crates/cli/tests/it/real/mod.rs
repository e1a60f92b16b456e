//! The KubeVirt operator on a real kube-apiserver with KubeVirt's own virt-api and virt-controller.
//!
//! One cluster and one test, because the operator works on a whole cluster. Independent parts run concurrently, each in
//! its own namespace.

#![expect(clippy::panic, reason = "a test that cannot go on has failed")]

mod bed;
mod examples;
mod leaders;
mod life;
mod many;
mod mistakes;
mod providers;
mod telemetry;

use serde_json::json;
use vitistack_testkit::{Companion, KubeVirt};

use self::bed::{Bed, OPERATORS};

#[tokio::test(flavor = "multi_thread")]
async fn the_kubevirt_operator_on_a_real_cluster() {
    let bed = Bed::start().await;
    // Nothing listens there; a configured collector is enough to create traces.
    let collector = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
    let first = bed.operator(OPERATORS[0], &[collector]);
    first.await_leading().await;

    let missing = mistakes::a_machine_reports_that_kubevirt_is_missing(&bed).await;
    for companion in [Companion::Cdi, Companion::Multus] {
        KubeVirt::install(&bed.server, companion).unwrap();
    }
    let kubevirt = KubeVirt::start(&bed.server).await.unwrap();
    prepare(&bed).await;
    mistakes::it_runs_once_kubevirt_is_installed(&bed).await;

    let ((), (), report) = tokio::join!(
        examples::every_example_of_the_specification_runs(&bed),
        life::a_machine_is_stopped_started_restarted_resized_and_deleted(&bed),
        mistakes::every_mistake_is_reported_and_fixed(&bed),
    );
    insta::assert_snapshot!("mistakes", format!("{missing}\n\n{report}"));
    telemetry::series_have_the_names_of_the_specification(&bed, &first).await;
    telemetry::lines_have_the_fields_of_the_specification_and_belong_to_a_trace(&first);

    many::two_hundred_machines_are_created_and_deleted_within_the_budget(&bed).await;
    let second = leaders::a_leader_that_is_terminated_is_replaced(&bed, first).await;
    examples::a_cluster_at_rest_is_left_alone(&bed, &second).await;
    let third = leaders::a_leader_that_is_killed_is_replaced(&bed, second).await;

    let report = providers::providers_of_every_sort(&bed, &third).await;
    insta::assert_snapshot!("providers", report);
    leaders::no_request_was_forbidden(&bed);
    drop((third, kubevirt));
}

/// What the examples of the specification expect of a cluster.
async fn prepare(bed: &Bed) {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "fast-ssd" },
        "provisioner": "standin.vitistack.io", "allowVolumeExpansion": true,
    });
    bed.create(&class).await;
}
