//! Whether the operators run: each renews a lease while it acts.

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    jiff::{SignedDuration, Timestamp},
};
use kube::{Api, ResourceExt, api::ListParams};
use vitistack_types::labels::SYSTEM_NAMESPACE;

use super::{Finding, unknown};
use crate::{
    cluster::{Cluster, RequestError},
    output::age,
};

/// Looks at every lease of the operators. `now` is the server's time.
pub async fn look(cluster: &Cluster, now: Timestamp) -> Result<Vec<Finding>, RequestError> {
    let api: Api<Lease> = Api::namespaced(cluster.client.clone(), SYSTEM_NAMESPACE);
    let leases = match api.list(&ListParams::default()).await {
        Ok(leases) => leases.items,
        Err(error) => return Ok(vec![unknown("operators", cluster.failure("list leases", error))?]),
    };
    if leases.is_empty() {
        return Ok(vec![Finding::warning(
            "operators",
            format!("none has a lease in {SYSTEM_NAMESPACE}"),
            "start them with `vitistack manager | kubectl apply --server-side -f -`",
        )]);
    }
    Ok(leases.iter().map(|lease| judge(lease, now)).collect())
}

fn judge(lease: &Lease, now: Timestamp) -> Finding {
    let check = format!("operator {}", lease.name_any());
    let fix = format!("see `kubectl -n {SYSTEM_NAMESPACE} get pods`, and their logs");
    let LeaseSpec { holder_identity, renew_time, lease_duration_seconds, .. } =
        lease.spec.clone().unwrap_or_default();
    let Some(holder) = holder_identity.filter(|holder| !holder.is_empty()) else {
        return Finding::failed(&check, "nobody acts", fix);
    };
    let renewed = renew_time.map(|time| time.0);
    let lasts = SignedDuration::from_secs(lease_duration_seconds.unwrap_or_default().into());
    if renewed.is_some_and(|renewed| now.duration_since(renewed) <= lasts) {
        return Finding::ok(&check, format!("{holder} acts"));
    }
    let since = age(renewed, now);
    Finding::failed(&check, format!("{holder} has not been heard of for {since}"), fix)
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
    fn an_operator_acts_while_its_lease_is_fresh() {
        let after = |seconds| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
        assert_eq!(judge(&lease("pod-1"), after(15)).result, Outcome::Ok);
        assert_eq!(judge(&lease(""), after(1)).result, Outcome::Failed);
        let stale = judge(&lease("pod-1"), after(300));
        assert_eq!(
            (stale.result, stale.message.as_str()),
            (Outcome::Failed, "pod-1 has not been heard of for 5m")
        );
    }
}
