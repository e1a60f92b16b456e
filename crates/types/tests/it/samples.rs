//! Every sample loads, says nothing that its kind does not know, and keeps the rules of its kind's definition.

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

/// Reads the document as its kind, judges it and writes it again.
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
        other => unreachable!("no kind {other}"),
    }
}

#[test]
fn every_sample_loads_without_loss_and_is_valid() {
    for (name, document) in documents() {
        assert_eq!(round_trip(&document), document, "{name}");
    }
}

#[test]
fn every_kind_has_a_sample() {
    for definition in vitistack_types::definitions() {
        let kind = definition.spec.names.kind;
        assert!(documents().any(|(_, document)| document["kind"] == kind.as_str()), "{kind}");
    }
}

#[test]
fn one_sample_shows_every_field_of_a_machine() {
    let (_, document) = documents().find(|(name, _)| *name == "machine-every-field").unwrap();
    let spec = document["spec"].as_object().unwrap();
    let definitions = vitistack_types::definitions();
    let machine = definitions.iter().find(|definition| definition.spec.names.kind == "Machine").unwrap();
    let schema = machine.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
    for field in schema.properties.as_ref().unwrap()["spec"].properties.as_ref().unwrap().keys() {
        // It would tie the sample to a datacenter that has to have the sample's provider.
        assert!(spec.contains_key(field) || field == "datacenterRef", "{field}");
    }
}
