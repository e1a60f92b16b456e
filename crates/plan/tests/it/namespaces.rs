//! Operators that watch some namespaces: what is in others is unknown, never absent.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use vitistack_plan::{
    datacenter::{Usage, candidate, plan_orphan},
    machine::{Location, PlacementContext, locate},
    provider::{Health, Snapshot, Step, plan},
};
use vitistack_types::{
    ObjectReference, Placement, WatchedNamespaces,
    conditions::reason,
    labels,
    v1alpha1::{Datacenter, Machine, MachineProvider, ProviderReference, ProviderType},
};

fn watched(names: &str) -> WatchedNamespaces {
    names.parse().unwrap()
}

fn provider(namespace: &str, annotation: Option<(&str, &str)>) -> MachineProvider {
    let provider = MachineProvider::builder().provider_type(ProviderType::Simulated);
    let mut provider = provider.build("rack", namespace).unwrap();
    provider.metadata.annotations =
        annotation.map(|(name, value)| [(name.to_owned(), value.to_owned())].into());
    provider
}

fn reference(namespace: &str) -> ObjectReference {
    ObjectReference::builder().name("rack").namespace(namespace).build()
}

/// Where a Machine goes if the operator knows no object and watches these namespaces.
fn location(machine: &Machine, providers: &[&MachineProvider], names: &WatchedNamespaces) -> Location {
    let context =
        PlacementContext { providers, datacenters: &[], watched: names, is_own_cluster_offered: true };
    locate(machine, &context)
}

fn refusal(location: Location) -> (&'static str, String) {
    match location {
        Location::Refused(refusal) => (refusal.reason, refusal.message),
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn a_reference_into_a_namespace_that_is_not_watched_is_refused_with_the_fix() {
    let machine =
        Machine::builder().template("small").provider_ref(reference("infra")).build("web", "shop").unwrap();
    let (why, message) = refusal(location(&machine, &[], &watched("shop")));
    assert_eq!(why, reason::NAMESPACE_NOT_WATCHED);
    assert_eq!(
        message,
        "spec.providerRef: MachineProvider \"infra/rack\" is in namespace \"infra\", which is not watched by this operator: add the namespace to --namespaces"
    );
}

#[test]
fn a_machine_on_a_provider_that_is_not_watched_is_neither_moved_nor_orphaned() {
    let machine = Machine::builder().template("small").datacenter_ref(reference("shop"));
    let mut machine = machine.build("web", "shop").unwrap();
    machine.metadata.annotations = Some([(labels::PLACEMENT.to_owned(), "infra/rack".to_owned())].into());
    machine.metadata.finalizers = Some(vec![labels::MACHINE_CLEANUP.to_owned()]);
    let status = serde_json::json!({ "provider": { "name": "rack", "namespace": "infra" } });
    machine.status = Some(serde_json::from_value(status).unwrap());
    assert_eq!(refusal(location(&machine, &[], &watched("shop"))).0, reason::NAMESPACE_NOT_WATCHED);
    assert_eq!(refusal(location(&machine, &[], &WatchedNamespaces::ALL)).0, reason::PROVIDER_NOT_FOUND);
}

#[test]
fn the_platform_default_is_unknown_if_its_namespace_is_not_watched() {
    let machine = Machine::builder().template("small").build("web", "shop").unwrap();
    let (why, message) = refusal(location(&machine, &[], &watched("shop")));
    assert_eq!(why, reason::NAMESPACE_NOT_WATCHED);
    assert!(message.contains("vitistack-system"), "{message}");
    let both = watched("shop,vitistack-system");
    assert_eq!(location(&machine, &[], &both), Location::At(Placement::OwnCluster));
}

#[test]
fn a_datacenter_does_not_decide_on_what_is_not_watched() {
    let listed = ProviderReference::builder().name("rack").namespace("infra").priority(1).build();
    let datacenter = Datacenter::builder().region("west").machine_providers(vec![listed.clone()]);
    let datacenter = datacenter.build("west", "shop").unwrap();
    let problem = candidate(&datacenter, &listed, None, &watched("shop")).problem.unwrap();
    assert_eq!(problem.refusal.reason, reason::NAMESPACE_NOT_WATCHED);

    let machine = Machine::builder().template("small").datacenter_ref(reference("infra"));
    let machine = machine.build("web", "shop").unwrap();
    let step = plan_orphan(&machine, &watched("shop"), Timestamp::UNIX_EPOCH).unwrap().to_string();
    assert!(step.contains("is not watched by this operator"), "{step}");
}

#[test]
fn a_provider_is_kept_while_machines_that_are_not_known_may_be_on_it() {
    let steps = |namespace: &str, annotation, names: &WatchedNamespaces| {
        let mut provider = provider(namespace, annotation);
        provider.metadata.finalizers = Some(vec![labels::PROVIDER_IN_USE.to_owned()]);
        provider.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let planned = plan(&Snapshot {
            provider: &provider,
            credentials: None,
            health: &Health::default(),
            used: Usage::default(),
            occupants: &[],
            watched: names,
            now: Timestamp::UNIX_EPOCH,
        });
        (planned.steps, planned.status.unwrap().conditions.first().unwrap().message.clone())
    };
    let allowed = |names: &'static str| Some((labels::ALLOW_REFERENCES_FROM, names));
    let some = watched("infra,shop");
    for (namespace, annotation) in [
        ("infra", allowed("shop,other")),
        ("infra", allowed("*")),
        (labels::SYSTEM_NAMESPACE, Some((labels::IS_DEFAULT_PROVIDER, "true"))),
    ] {
        let (steps, message) = steps(namespace, annotation, &some);
        assert_eq!(steps, [], "{annotation:?}");
        assert!(message.contains("add them to --namespaces"), "{message}");
    }
    for annotation in [None, allowed("shop"), allowed("shop, infra")] {
        assert_eq!(steps("infra", annotation, &some).0, [Step::Release], "{annotation:?}");
    }
    assert_eq!(steps("infra", allowed("*"), &WatchedNamespaces::ALL).0, [Step::Release]);
}

#[test]
fn a_refusal_does_not_show_whether_something_in_another_namespace_exists() {
    let machine =
        Machine::builder().template("small").provider_ref(reference("infra")).build("web", "shop").unwrap();
    let foreign = provider("infra", None);
    let absent = refusal(location(&machine, &[], &WatchedNamespaces::ALL));
    let forbidden = refusal(location(&machine, &[&foreign], &WatchedNamespaces::ALL));
    assert_eq!(absent, forbidden);
    assert_eq!(absent.0, reason::REFERENCE_NOT_PERMITTED);

    let listed = ProviderReference::builder().name("rack").namespace("infra").priority(1).build();
    let datacenter = Datacenter::builder().region("west").machine_providers(vec![listed.clone()]);
    let datacenter = datacenter.build("west", "shop").unwrap();
    let problem = |found| candidate(&datacenter, &listed, found, &WatchedNamespaces::ALL).problem;
    assert_eq!(problem(None), problem(Some(&foreign)));
}
