//! Every sample can be read, has no unknown fields and satisfies the rules of its CRD.

use serde_json::Value;
use vitistack_types::{
    check, decode, samples,
    v1alpha1::{Datacenter, Machine, MachineClass, MachineProvider, NetworkConfiguration},
};

fn documents() -> impl Iterator<Item = (&'static str, Value)> {
    samples().iter().flat_map(|sample| {
        let documents: Vec<Value> = serde_saphyr::from_multiple(sample.manifest).unwrap();
        documents.into_iter().map(|document| (sample.name, document))
    })
}

/// Reads a document as its kind, checks it and serializes it again.
fn round_trip(document: &Value) -> Value {
    macro_rules! as_kind {
        ($kind:ty) => {{
            let object: $kind = decode(document.clone()).unwrap();
            check(&object).unwrap();
            serde_json::to_value(object).unwrap()
        }};
    }
    match document["kind"].as_str().unwrap() {
        "Datacenter" => as_kind!(Datacenter),
        "Machine" => as_kind!(Machine),
        "MachineClass" => as_kind!(MachineClass),
        "MachineProvider" => as_kind!(MachineProvider),
        "NetworkConfiguration" => as_kind!(NetworkConfiguration),
        other => unreachable!("unknown kind {other}"),
    }
}

#[test]
fn every_sample_round_trips_and_is_valid() {
    for (name, document) in documents() {
        assert_eq!(round_trip(&document), document, "{name}");
    }
}

#[test]
fn every_kind_has_a_sample() {
    for crd in vitistack_types::definitions() {
        let kind = crd.spec.names.kind;
        assert!(documents().any(|(_, document)| document["kind"] == kind.as_str()), "{kind}");
    }
}

#[test]
fn one_sample_shows_every_field_of_a_machine() {
    let (_, document) = documents().find(|(name, _)| *name == "machine-every-field").unwrap();
    let spec = document["spec"].as_object().unwrap();
    let crds = vitistack_types::definitions();
    let machine = crds.iter().find(|crd| crd.spec.names.kind == "Machine").unwrap();
    let schema = machine.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
    for field in schema.properties.as_ref().unwrap()["spec"].properties.as_ref().unwrap().keys() {
        // A datacenterRef would require a Datacenter with the sample's provider.
        assert!(spec.contains_key(field) || field == "datacenterRef", "{field}");
    }
}
