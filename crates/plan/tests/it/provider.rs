//! What is told of a provider.

use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use vitistack_plan::{
    Refusal,
    datacenter::Usage,
    provider::{Health, Probed, Snapshot, credentials, status},
};
use vitistack_types::{
    SecretKeyReference,
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
    provider
}

#[test]
fn a_provider_is_told_from_its_credentials_and_its_checks() {
    let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
    let mut provider = provider();
    let mut page = String::new();
    let mut tell =
        |what: &str, provider: &mut MachineProvider, credentials, health: &Health, on_it: &[&str]| {
            let occupants: Vec<String> = on_it.iter().map(ToString::to_string).collect();
            let used = Usage { machines: 3, cpu: 6, memory: 12 << 30, storage: 120 << 30 };
            let snapshot =
                Snapshot { provider, credentials: Some(credentials), health, used, occupants: &occupants };
            let status = status(&snapshot, now);
            write!(page, "\n# {what}\n{}", serde_saphyr::to_string(&status).unwrap()).unwrap();
            provider.status = Some(status);
        };
    let missing = credentials(&provider, None::<fn(&str) -> Option<()>>).unwrap();
    tell("no Secret", &mut provider, missing, &Health::default(), &[]);
    let empty = credentials(&provider, Some(|_: &str| None::<()>)).unwrap();
    tell("no key", &mut provider, empty, &Health::default(), &[]);
    let probed = Probed { version: Some("v1.8.2".parse().unwrap()) };
    let well = Health::default().after(Ok(probed), 3);
    tell("all is well", &mut provider, Ok(()), &well, &[]);
    let refused = Err(Refusal::new(reason::INVALID_CREDENTIALS, "it does not accept the token: renew it"));
    tell("the token is not accepted", &mut provider, Ok(()), &well.clone().after(refused, 1), &[]);
    let away = Err(Refusal::new(reason::PROVIDER_UNREACHABLE, "it did not answer within 10s"));
    tell("it is away", &mut provider, Ok(()), &well.clone().after(away, 1), &[]);
    provider.metadata.annotations = Some([(labels::PAUSED.to_owned(), "true".to_owned())].into());
    tell("it is paused", &mut provider, Ok(()), &well, &[]);
    provider.metadata.annotations = None;
    provider.metadata.deletion_timestamp = Some(Time(now));
    let four = ["a/one", "a/two", "b/one", "b/two"];
    tell("it is to go, and four machines are on it", &mut provider, Ok(()), &well, &four);
    tell("one is left", &mut provider, Ok(()), &well, &four[..1]);
    insta::assert_snapshot!(page);
}
