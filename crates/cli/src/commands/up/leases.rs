//! The leases of operators that live and die with their API: `vitistack up` holds them without renewing, so that whoever
//! looks sees who acts, and a `vitistack run` beside it stands by.

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use vitistack_controller::operators::Operator;
use vitistack_types::labels::SYSTEM_NAMESPACE;

use super::demo::{DemoError, MANAGER};

/// Who acts.
const HOLDER: &str = "vitistack up";

/// Longer than any process lives. A renewal every few seconds would say nothing more: the API answers only while the
/// operators run, and whoever serves the same data next, with operators or without, gives back what a killed one left.
const FOR_EVER: i32 = i32::MAX;

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), SYSTEM_NAMESPACE)
}

/// Takes the leases of all operators.
pub async fn take(client: &Client) -> Result<(), DemoError> {
    let now = format!("{:.6}", Timestamp::now());
    for operator in Operator::ALL {
        let name = operator.name();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name },
            "spec": { "holderIdentity": HOLDER, "leaseDurationSeconds": FOR_EVER, "acquireTime": now, "renewTime": now },
        });
        leases(client)
            .patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&lease))
            .await
            .map_err(|source| DemoError::ApplyObject { name: name.to_owned(), source: Box::new(source) })?;
    }
    Ok(())
}

/// Gives back those that `vitistack up` has or left behind; what somebody else holds stays.
pub async fn give_back(client: &Client) {
    let leases = leases(client);
    for operator in Operator::ALL {
        let name = operator.name();
        // Neither a start nor an end is held up by this.
        let Ok(Some(lease)) = leases.get_opt(name).await else { continue };
        if lease.spec.and_then(|spec| spec.holder_identity).as_deref() == Some(HOLDER) {
            let _ = leases.delete(name, &DeleteParams::default()).await;
        }
    }
}
