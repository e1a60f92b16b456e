//! What a tenant writes does not change what others get.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use vitistack_plan::{
    Inventory,
    explain::explain,
    machine::{Location, PlacementContext, locate},
};
use vitistack_types::{
    ObjectId, ObjectReference, Placement, WatchedNamespaces, labels,
    v1alpha1::{KubeVirtProvider, Machine, MachineProvider, ProviderType},
};

fn provider(namespace: &str, target: Option<&str>) -> MachineProvider {
    let settings = target.map(|target| KubeVirtProvider { namespace: Some(target.to_owned()) });
    let provider = MachineProvider::builder().provider_type(ProviderType::Kubevirt).maybe_kubevirt(settings);
    provider.build("evil", namespace).unwrap()
}

fn location(providers: &[&MachineProvider]) -> Location {
    let machine = Machine::builder().template("small").build("web", "bystander").unwrap();
    let watched = &WatchedNamespaces::ALL;
    locate(&machine, &PlacementContext { providers, datacenters: &[], watched, is_own_cluster_offered: true })
}

#[test]
fn a_provider_of_a_tenant_does_not_turn_off_the_built_in_default() {
    let own_cluster = Location::At(Placement::OwnCluster);
    assert_eq!(location(&[]), own_cluster);
    assert_eq!(location(&[&provider("tenant-a", None)]), own_cluster);
    let platform = location(&[&provider(labels::SYSTEM_NAMESPACE, None)]);
    assert!(
        matches!(&platform, Location::Refused(refusal) if refusal.reason == "NoDefaultProvider"),
        "{platform:?}"
    );
}

fn why(annotation: Option<&str>) -> String {
    let reference = ObjectReference::builder().name("evil").build();
    let machine = Machine::builder().template("small").provider_ref(reference).build("thief", "tenant-a");
    let annotations =
        annotation.map(|value| [(labels::ALLOW_REFERENCES_FROM.to_owned(), value.to_owned())].into());
    let victim = ObjectMeta { annotations, ..ObjectMeta::default() };
    let inventory = Inventory {
        machines: vec![machine.unwrap()],
        providers: vec![provider("tenant-a", Some("victim"))],
        namespaces: Some(BTreeMap::from([("victim".to_owned(), victim)])),
        ..Inventory::default()
    };
    let thief = ObjectId::of(inventory.machines.first().unwrap());
    format!("{:?}", explain(&thief, &inventory))
}

#[test]
fn why_names_the_command_that_permits_a_provider_to_use_a_namespace() {
    let command = "kubectl annotate namespace victim vitistack.io/allow-references-from=tenant-a";
    assert!(why(None).contains(command), "{}", why(None));
    assert!(why(Some("tenant-b")).contains(command));
    assert!(!why(Some("tenant-a")).contains(command));
}
