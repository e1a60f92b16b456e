//! The status of a MachineProvider.

use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use vitistack_plan::{
    Refusal,
    datacenter::Usage,
    provider::{Health, Probed, Snapshot, credentials, plan},
};
use vitistack_types::{
    ObjectName, SecretKeyReference, WatchedNamespaces,
    conditions::reason,
    labels,
    v1alpha1::{MachineProvider, ProviderCredentials, ProviderType},
};

fn provider() -> MachineProvider {
    let secret = SecretKeyReference::builder().name("login").key("kubeconfig").build();
    let credentials = ProviderCredentials::builder().secret_ref(secret).build();
    let provider = MachineProvider::builder().provider_type(ProviderType::Kubevirt).credentials(credentials);
    let mut provider = provider.build("west", "infra").unwrap();
    provider.metadata.generation = Some(1);
    provider.metadata.finalizers = Some(vec![labels::PROVIDER_IN_USE.to_owned()]);
    provider
}

#[test]
fn provider_status_follows_credentials_and_health_checks() {
    let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
    let mut provider = provider();
    let mut page = String::new();
    let mut report =
        |what: &str, provider: &mut MachineProvider, credentials, health: &Health, machines: &[&str]| {
            let occupants: Vec<ObjectName> =
                machines.iter().map(|name| ObjectName::new("shop", *name)).collect();
            let used = Usage { machines: 3, cpu: 6, memory: 12 << 30, storage: 120 << 30 };
            let credentials = Some(credentials);
            let watched = &WatchedNamespaces::ALL;
            let occupants = &occupants[..];
            let planned = plan(&Snapshot { provider, credentials, health, used, occupants, watched, now });
            write!(page, "\n# {what}\n{}", serde_saphyr::to_string(&planned).unwrap()).unwrap();
            provider.status = planned.status.or(provider.status.take());
        };

    let first = Ok(());
    report("not checked yet", &mut provider, first, &Health::default(), &[]);
    let missing = credentials(&provider, None::<fn(&str) -> Option<()>>).unwrap();
    report("no Secret", &mut provider, missing, &Health::default(), &[]);
    let empty = credentials(&provider, Some(|_: &str| None::<()>)).unwrap();
    report("no key", &mut provider, empty, &Health::default(), &[]);

    let probed = Probed { version: Some("v1.8.2".parse().unwrap()) };
    let healthy = Health::default().after(Ok(probed), 3);
    report("it answers", &mut provider, Ok(()), &healthy, &[]);
    let refused = Err(Refusal::new(reason::INVALID_CREDENTIALS, "the token is not accepted: renew it"));
    report("the token is not accepted", &mut provider, Ok(()), &healthy.clone().after(refused, 1), &[]);
    let unreachable = Err(Refusal::new(reason::PROVIDER_UNREACHABLE, "no answer within 10s"));
    report("it does not answer", &mut provider, Ok(()), &healthy.clone().after(unreachable, 1), &[]);

    provider.metadata.annotations = Some([(labels::PAUSED.to_owned(), "true".to_owned())].into());
    report("it is paused", &mut provider, Ok(()), &healthy, &[]);
    provider.metadata.annotations = None;
    provider.metadata.deletion_timestamp = Some(Time(now));
    let four = ["db-1", "db-2", "web-1", "web-2"];
    report("it is deleted while four machines are on it", &mut provider, Ok(()), &healthy, &four);
    report("one is left", &mut provider, Ok(()), &healthy, &four[..1]);

    insta::assert_snapshot!(page);
}
