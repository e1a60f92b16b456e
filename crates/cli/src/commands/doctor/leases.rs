//! Checks that the operators are running: the leader of each renews a lease.

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    jiff::{SignedDuration, Timestamp},
};
use kube::{Api, ResourceExt, api::ListParams};
use vitistack_types::labels::SYSTEM_NAMESPACE;

use super::{Finding, unknown};
use crate::{
    cluster::{Cluster, RequestError},
    printing::age,
};

/// Checks every lease of the operators. `now` is the time of the server.
pub async fn check(cluster: &Cluster, now: Timestamp) -> Result<Vec<Finding>, RequestError> {
    let api: Api<Lease> = Api::namespaced(cluster.client.clone(), SYSTEM_NAMESPACE);
    let leases = match api.list(&ListParams::default()).await {
        Ok(leases) => leases.items,
        Err(error) => return Ok(vec![unknown("operators", cluster.failure("list leases", error))?]),
    };
    if leases.is_empty() {
        return Ok(vec![Finding::warning(
            "operators",
            format!("no lease found in namespace {SYSTEM_NAMESPACE}"),
            "start the operators with \"vitistack manager | kubectl apply --server-side -f -\"",
        )]);
    }
    Ok(leases.iter().map(|lease| judge(lease, now)).collect())
}

fn judge(lease: &Lease, now: Timestamp) -> Finding {
    let check = lease.name_any();
    let fix = format!("check \"kubectl -n {SYSTEM_NAMESPACE} get pods\" and the logs of the pods");
    let LeaseSpec { holder_identity, renew_time, lease_duration_seconds, .. } =
        lease.spec.clone().unwrap_or_default();
    let Some(holder) = holder_identity.filter(|holder| !holder.is_empty()) else {
        return Finding::failed(&check, "no leader", fix);
    };

    let renewed = renew_time.map(|time| time.0);
    let lasts = SignedDuration::from_secs(lease_duration_seconds.unwrap_or_default().into());
    if renewed.is_some_and(|renewed| now.duration_since(renewed) <= lasts) {
        return Finding::ok(&check, format!("leader: {holder}"));
    }
    Finding::failed(
        &check,
        format!("leader {holder} has not renewed its lease for {}", age(renewed, now)),
        fix,
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::{super::Outcome, *};

    fn lease(holder: &str) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.name = Some("kubevirt".to_owned());
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            renew_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        });
        lease
    }

    #[test]
    fn an_operator_has_a_leader_while_its_lease_is_renewed() {
        let after = |seconds| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
        assert_eq!(judge(&lease("pod-1"), after(15)).result, Outcome::Ok);
        assert_eq!(judge(&lease(""), after(1)).result, Outcome::Failed);
        let stale = judge(&lease("pod-1"), after(300));
        assert_eq!(
            (stale.result, stale.message.as_str()),
            (Outcome::Failed, "leader pod-1 has not renewed its lease for 5m")
        );
    }
}
