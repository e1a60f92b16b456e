//! The conformance suite with the real KubeVirt. Without interleavings: those compare the resources before and after each
//! call, and here they also change between calls.

use vitistack_machine::conformance::{CHECKS, run};

use super::testbed::RealHarness;

#[tokio::test]
async fn it_passes_every_check() {
    let report = run(&RealHarness::new().await).await;
    assert_eq!(report.results.len(), CHECKS.len());
    assert!(report.is_clean(), "\n{report}");
}
