//! The rules of all backends, on KubeVirt's own programs. Not their random orders: those compare what there is before and
//! after each call, and here time does not wait for the next one.

use vitistack_machine::conformance::{CHECKS, run};

use super::bench::RealBenches;

#[tokio::test]
async fn it_keeps_every_rule() {
    let report = run(&RealBenches::new().await).await;
    assert_eq!(report.results.len(), CHECKS.len());
    assert!(report.is_clean(), "\n{report}");
}
