//! First-boot configuration. It is always in a Secret, because anyone who can read a VirtualMachine could read inline data,
//! of which KubeVirt accepts at most 2048 bytes.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value, json};
use vitistack_clients::kubernetes::fingerprint;
use vitistack_plan::{Redacted, machine::DesiredCloudInit};

use super::names;

/// The key of user data in a Secret for KubeVirt.
const USER_DATA: &str = "userdata";

/// The key of network data in a Secret for KubeVirt.
const NETWORK_DATA: &str = "networkdata";

/// The keys of user data that KubeVirt accepts in a Secret.
const KEYS_OF_KUBEVIRT: [&str; 2] = [USER_DATA, "userData"];

/// The maximum size of a Secret.
const SECRET_LIMIT: usize = 1 << 20;

/// How cloud-init merges two documents: lists are appended, and the first document wins a conflict.
const MERGE: &str = "list(append)+dict(no_replace,recurse_list)+str()";

/// The first-boot configuration in a VirtualMachine.
#[derive(Clone, Debug, PartialEq)]
pub struct CloudInit {
    /// The source of the volume, in the format of KubeVirt.
    pub source: Value,
    /// The Secret to create, where the Secret of the user cannot be used.
    pub secret: Option<DerivedSecret>,
}

/// A Secret derived from the spec and the Secret of the user. Its content is never printed.
#[derive(Clone, Debug, PartialEq)]
pub struct DerivedSecret {
    /// Name.
    pub name: String,
    /// Data by key.
    pub data: BTreeMap<&'static str, Redacted<String>>,
}

impl DerivedSecret {
    /// Whether the data exceeds the maximum size of a Secret.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.data.values().map(|value| value.reveal().len()).sum::<usize>() > SECRET_LIMIT
    }

    /// Returns the data in the format of the API.
    #[must_use]
    pub fn encoded(&self) -> Map<String, Value> {
        let encode = |value: &Redacted<String>| Value::from(BASE64_STANDARD.encode(value.reveal()));
        self.data.iter().map(|(key, value)| ((*key).to_owned(), encode(value))).collect()
    }
}

/// Returns the first-boot configuration of a machine. The Secret of the user is used if it is in the namespace of the
/// machine (`is_beside`), contains all user data, and has it under a key that KubeVirt accepts.
#[must_use]
pub fn cloud_init(desired: &DesiredCloudInit, machine: &str, is_beside: bool) -> Option<CloudInit> {
    let own_name = names::cloud_init_secret(machine);
    let mut source = Map::new();
    let mut data = BTreeMap::new();
    match (&desired.user_data, &desired.secret) {
        (None, Some(secret)) if is_beside && KEYS_OF_KUBEVIRT.contains(&secret.key.as_str()) => {
            source.insert("secretRef".to_owned(), json!({ "name": secret.name }));
        }
        (written, secret) => {
            let parts =
                written.as_ref().into_iter().chain(secret.as_ref().map(|secret| secret.content.reveal()));
            if let Some(document) = document(&parts.map(String::as_str).collect::<Vec<_>>()) {
                source.insert("secretRef".to_owned(), json!({ "name": own_name }));
                data.insert(USER_DATA, Redacted::new(document));
            }
        }
    }
    if let Some(network_data) = &desired.network_data {
        source.insert("networkDataSecretRef".to_owned(), json!({ "name": own_name }));
        data.insert(NETWORK_DATA, Redacted::new(network_data.clone()));
    }
    let secret = (!data.is_empty()).then_some(DerivedSecret { name: own_name, data });
    (!source.is_empty()).then_some(CloudInit { source: Value::Object(source), secret })
}

/// Returns one document: a single part unchanged, several as one multi-part document.
fn document(parts: &[&str]) -> Option<String> {
    match parts {
        [] => None,
        [only] => Some((*only).to_owned()),
        several => {
            // The boundary depends on the parts only, so that the same parts give the same document.
            let boundary = format!("vitistack-{}", fingerprint(&json!(several)));
            let parts = several.iter().map(|part| format!("--{boundary}\n{}", encapsulated(part)));
            Some(format!(
                "Content-Type: multipart/mixed; boundary=\"{boundary}\"\nMIME-Version: 1.0\n\n{}--{boundary}--\n",
                parts.collect::<String>()
            ))
        }
    }
}

/// Returns one part of a multi-part document. A part that is a MIME document itself already has headers.
fn encapsulated(part: &str) -> String {
    let starts_with =
        |header: &str| part.get(..header.len()).is_some_and(|start| start.eq_ignore_ascii_case(header));
    if starts_with("content-type:") || starts_with("mime-version:") {
        return format!("{part}\n");
    }
    // Encoded because of long lines, non-ASCII letters and text that equals the boundary.
    let encoded = BASE64_STANDARD.encode(part);
    let lines: Vec<&str> =
        encoded.as_bytes().chunks(76).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!(
        "Content-Type: {}; charset=\"utf-8\"\nMIME-Version: 1.0\nContent-Transfer-Encoding: base64\nMerge-Type: {MERGE}\n\n{}\n",
        content_type(part),
        lines.join("\n")
    )
}

/// Returns the type of a part by its first line, as cloud-init does; of plain text cloud-init detects the type itself.
fn content_type(part: &str) -> &'static str {
    const TYPES: [(&str, &str); 8] = [
        ("#cloud-config-archive", "text/cloud-config-archive"),
        ("#cloud-config", "text/cloud-config"),
        ("#cloud-boothook", "text/cloud-boothook"),
        ("#include-once", "text/x-include-once-url"),
        ("#include", "text/x-include-url"),
        ("#part-handler", "text/part-handler"),
        ("## template: jinja", "text/jinja2"),
        ("#!", "text/x-shellscript"),
    ];
    TYPES.iter().find(|(start, _)| part.starts_with(start)).map_or("text/plain", |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use vitistack_plan::machine::SecretPart;

    use super::*;

    fn desired(user_data: Option<&str>, network_data: Option<&str>, key: Option<&str>) -> DesiredCloudInit {
        DesiredCloudInit {
            user_data: user_data.map(str::to_owned),
            network_data: network_data.map(str::to_owned),
            secret: key.map(|key| SecretPart {
                name: "secrets".to_owned(),
                key: key.to_owned(),
                content: Redacted::new("#!/bin/sh\nécho hunter2\n".to_owned()),
            }),
        }
    }

    #[test]
    fn the_secret_of_the_user_is_used_only_where_kubevirt_can_read_it() {
        for (key, is_beside, name) in [
            ("userdata", true, "secrets"),
            ("userData", true, "secrets"),
            ("user-data", true, "vm-cloudinit"),
            ("userdata", false, "vm-cloudinit"),
        ] {
            let configuration = cloud_init(&desired(None, None, Some(key)), "vm", is_beside).unwrap();
            assert_eq!(configuration.source, json!({ "secretRef": { "name": name } }));
            assert_eq!(configuration.secret.is_some(), name == "vm-cloudinit");
        }
    }

    #[test]
    fn an_empty_configuration_creates_nothing() {
        assert_eq!(cloud_init(&desired(None, None, None), "vm", true), None);
    }

    #[test]
    fn two_parts_become_one_document_that_is_the_same_every_time() {
        let wanted = desired(Some("#cloud-config\npackages: [curl]\n"), None, Some("userdata"));
        let configuration = cloud_init(&wanted, "vm", true).unwrap();
        assert_eq!(cloud_init(&wanted, "vm", true).unwrap(), configuration);
        insta::assert_snapshot!(configuration.secret.unwrap().data["userdata"].reveal());
    }

    #[test]
    fn a_part_with_headers_is_not_wrapped() {
        let nested = "Content-Type: multipart/mixed; boundary=\"b\"\n\n--b\n\nx\n--b--";
        let document = document(&[nested, "plain"]).unwrap();
        assert!(document.contains(nested));
        assert!(document.contains("Content-Type: text/plain"));
    }

    #[test]
    fn a_derived_secret_does_not_print_its_content() {
        let configuration = cloud_init(&desired(None, None, Some("key")), "vm", true).unwrap();
        assert!(!format!("{configuration:?}").contains("hunter2"));
    }

    #[test]
    fn data_larger_than_a_secret_is_detected() {
        let large = "x".repeat(SECRET_LIMIT);
        let configuration = cloud_init(&desired(Some(&large), None, None), "vm", true).unwrap();
        assert!(!configuration.secret.unwrap().is_too_large());
        let configuration = cloud_init(&desired(Some(&large), Some("y"), None), "vm", true).unwrap();
        assert!(configuration.secret.unwrap().is_too_large());
    }
}
