//! Whole machines: a folder for each, with the case and the resulting objects.

use std::{fs, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use kube::core::DynamicObject;
use serde_json::Value;
use vitistack_machine::kubevirt::{DerivedSecret, Write, changes};

use super::case::{Case, case};

/// Returns the objects of a case as they would be sent, with decoded Secrets.
fn objects(case: &Case) -> String {
    let planned = case.planned();
    assert_eq!(planned.problems, [], "a case with problems belongs in the refusals");
    let writes = changes(&case.settings(), &case.order(), &planned, &case.found(), None);
    let documents = writes.iter().map(|write| {
        let object = match write {
            Write::Create { child, .. } | Write::Apply { child, .. } => decode_secret(&child.object),
            Write::Amend { .. } | Write::Delete { .. } => Value::Null,
        };
        format!("# {write}\n{}", serde_saphyr::to_string(&object).unwrap())
    });
    documents.collect::<Vec<_>>().join("---\n")
}

fn decode_secret(object: &DynamicObject) -> Value {
    let mut object = serde_json::to_value(object).unwrap();
    if object["kind"] == "Secret" {
        for value in object["data"].as_object_mut().unwrap().values_mut() {
            let text = BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap();
            *value = String::from_utf8(text).unwrap().into();
        }
    }
    object
}

#[test]
fn every_case_has_the_expected_objects() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/kubevirt");
    let mut names: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| folder.join(name).is_dir())
        .collect();
    names.sort();
    assert!(names.len() > 15, "cases are missing: {names:?}");
    for name in names {
        let folder = folder.join(&name);
        let case = case(&fs::read_to_string(folder.join("case.yaml")).unwrap());
        insta::with_settings!({ snapshot_path => folder, prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!("objects", objects(&case));
        });
    }
}

#[test]
fn a_minimal_machine_needs_two_writes() {
    let case = case("sample: machine-basic");
    assert_eq!(
        case.writes(),
        ["create PersistentVolumeClaim default/basic-vm-root", "apply VirtualMachine default/basic-vm"]
    );
}

#[test]
fn a_plan_does_not_print_secrets() {
    let case = case(
        "{spec: {template: small, cloudInit: {secretRef: {name: secrets, key: other}}}, secret: {other: hunter2}}",
    );
    let planned = case.planned();
    assert!(planned.secret.is_some_and(|secret: DerivedSecret| !format!("{secret:?}").contains("hunter2")));
    assert!(!format!("{:?}", case.planned()).contains("hunter2"));
    assert!(!case.writes().join("\n").contains("hunter2"));
}
