//! Properties: no request panics the server.

use axum::body::Body;
use http::Request;
use proptest::prelude::*;
use tower::ServiceExt as _;

use crate::harness::{MAPS, TestServer, WIDGETS};

fn piece() -> impl Strategy<Value = String> {
    let names = prop::sample::select(vec![
        "api",
        "apis",
        "v1",
        "namespaces",
        "default",
        "secrets",
        "widgets",
        "example.com",
        "a",
        "status",
        "scale",
        "finalize",
        "%2F",
        "%",
        "..",
        "customresourcedefinitions",
        "apiextensions.k8s.io",
        "openapi",
        "v3",
        "events",
    ]);
    prop_oneof![4 => names.prop_map(str::to_owned), 1 => "[a-z%0-9._-]{0,8}"]
}

fn query() -> impl Strategy<Value = String> {
    let names = prop::sample::select(vec![
        "labelSelector",
        "fieldSelector",
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "timeoutSeconds",
        "dryRun",
        "fieldManager",
        "force",
        "fieldValidation",
        "sendInitialEvents",
        "allowWatchBookmarks",
        "includeObject",
        "propagationPolicy",
    ]);

    let values = prop_oneof![
        "[a-z0-9=!,()<>%.+-]{0,12}",
        Just("NotOlderThan".to_owned()),
        Just("Exact".to_owned()),
        Just("All".to_owned()),
        Just("Strict".to_owned()),
        Just("true".to_owned()),
        Just("1".to_owned()),
        Just("18446744073709551615".to_owned()),
        Just("-9223372036854775808".to_owned()),
    ];

    prop::collection::vec((names, values), 0..4).prop_map(|pairs| {
        pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
    })
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("-1".to_owned()),
        Just("1e400".to_owned()),
        Just("\"\"".to_owned()),
        Just("\"a\"".to_owned()),
        Just("\"2026-01-01T00:00:00Z\"".to_owned()),
        Just("99999999999999999999".to_owned()),
    ];

    let names = prop::sample::select(vec![
        "apiVersion",
        "kind",
        "metadata",
        "spec",
        "status",
        "name",
        "namespace",
        "labels",
        "finalizers",
        "ownerReferences",
        "managedFields",
        "uid",
        "resourceVersion",
        "generateName",
        "data",
        "color",
        "size",
        "replicas",
        "op",
        "path",
        "value",
        "$patch",
        "fieldsV1",
        "time",
        "deletionTimestamp",
        "annotations",
        "versions",
        "names",
        "schema",
        "openAPIV3Schema",
        "properties",
        "type",
        "items",
    ]);

    leaf.prop_recursive(6, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((names.clone(), inner), 0..6).prop_map(|members| {
                let members: Vec<String> =
                    members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let head = "\"apiVersion\":\"example.com/v1\",\"kind\":\"Widget\"";
    prop_oneof![
        6 => value().prop_map(String::into_bytes),
        4 => (value(), value()).prop_map(move |(metadata, spec)| {
            format!("{{{head},\"metadata\":{metadata},\"spec\":{spec}}}").into_bytes()
        }),
        2 => (value(), value()).prop_map(|(metadata, spec)| {
            format!("{{\"metadata\":{metadata},\"data\":{spec},\"spec\":{spec}}}").into_bytes()
        }),
        1 => prop::collection::vec(any::<u8>(), 0..64),
        1 => prop::collection::vec(any::<u8>(), 0..64).prop_map(|bytes| [b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Secret\x12\x20".to_vec(), bytes].concat()),
    ]
}

fn path() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::collection::vec(piece(), 0..8).prop_map(|pieces| format!("/{}", pieces.join("/"))),
        prop::sample::select(vec!["", "/a", "/a/status", "/a/scale"])
            .prop_map(|rest| format!("{WIDGETS}{rest}")),
        prop::sample::select(vec!["", "/a"]).prop_map(|rest| format!("{MAPS}{rest}")),
        Just(crate::harness::CRDS.to_owned()),
    ]
}

#[test]
fn no_request_panics() {
    // A list at a version that has not been reached waits for it; on this clock that takes no time.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let server = runtime.block_on(async {
        let server = TestServer::with_widgets().await;
        server.post(WIDGETS, crate::harness::widget("a")).await;
        server.post(MAPS, crate::harness::map("a")).await;
        server
    });

    let methods = prop::sample::select(vec!["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]);
    let kinds = prop::sample::select(vec![
        "application/json",
        "application/yaml",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "application/vnd.kubernetes.protobuf",
        "",
    ]);

    let accepts = prop::sample::select(vec![
        "application/json",
        "application/json;as=Table;g=meta.k8s.io;v=v1",
        "application/yaml",
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        "*/*",
    ]);

    let config = ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(method in methods, kind in kinds, accept in accepts, path in path(), query in query(), body in body())| {
        // A watch would never end; its parsing is the same.
        let uri = if query.is_empty() { path } else { format!("{path}?{query}") };
        let request = Request::builder().method(method).uri(uri).header("content-type", kind).header("accept", accept);
        if let Ok(request) = request.body(Body::from(body)) {
            let response = runtime.block_on(async {
                tokio::time::timeout(std::time::Duration::from_secs(30), server.api.service().oneshot(request)).await
            });
            prop_assert!(response.is_ok(), "no answer");
        }
    });
}
