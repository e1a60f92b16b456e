//! The leases of the operators of `vitistack up`. It holds them without renewing them, so that `vitistack doctor` shows the
//! leader and a concurrent `vitistack run` stands by.

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use vitistack_types::{OperatorName, labels::SYSTEM_NAMESPACE};

use super::demo::{DemoError, MANAGER};

/// The holder of the leases.
const HOLDER: &str = "vitistack up";

/// The leases do not expire. Renewing them is not needed: the API is available only while the operators are running, and
/// the next process that serves the same data releases the leases of one that was killed.
const DURATION: i32 = i32::MAX;

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), SYSTEM_NAMESPACE)
}

/// Acquires the leases of all operators.
pub async fn acquire(client: &Client) -> Result<(), DemoError> {
    let now = format!("{:.6}", Timestamp::now());
    for operator in OperatorName::all() {
        let name = operator.lease();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name },
            "spec": { "holderIdentity": HOLDER, "leaseDurationSeconds": DURATION, "acquireTime": now, "renewTime": now },
        });
        leases(client)
            .patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&lease))
            .await
            .map_err(|source| DemoError::ApplyObject { name: name.clone(), source: Box::new(source) })?;
    }
    Ok(())
}

/// Releases the leases that this or an earlier `vitistack up` holds. Those of other holders stay.
pub async fn release(client: &Client) {
    let leases = leases(client);
    for operator in OperatorName::all() {
        let name = operator.lease();
        // Errors are ignored: they must not prevent a start or a stop.
        let Ok(Some(lease)) = leases.get_opt(&name).await else { continue };
        if lease.spec.and_then(|spec| spec.holder_identity).as_deref() == Some(HOLDER) {
            let _ = leases.delete(&name, &DeleteParams::default()).await;
        }
    }
}
