//! Create, read, update, patch, delete: one row per rule.

use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{APPLY, MAPS, MERGE, TestServer, WIDGETS, map, widget};

#[tokio::test]
async fn the_server_sets_the_metadata_of_a_new_object() {
    let server = TestServer::with_widgets().await;
    let (code, object) = server.post(WIDGETS, widget("a")).await;
    assert_eq!(code, StatusCode::CREATED);
    assert_eq!(object["metadata"]["generation"], 1);
    assert_eq!(object["metadata"]["namespace"], "default");
    assert_eq!(object["spec"], json!({"color": "red", "size": 3}));
    assert_eq!(object["metadata"]["uid"].as_str().map(str::len), Some(36));
    let (_, read) = server.get(&format!("{WIDGETS}/a")).await;
    assert_eq!(read, object);
}

#[tokio::test]
async fn invalid_creates_are_rejected_as_by_kubernetes() {
    let server = TestServer::with_widgets().await;
    server.post(WIDGETS, widget("taken")).await;
    let with = |pointer: &str, value: Value| {
        let mut object = widget("a");
        *object.pointer_mut(pointer).unwrap() = value;
        object
    };

    let mut versioned = widget("a");
    versioned["metadata"]["resourceVersion"] = json!("5");
    let mut elsewhere = widget("a");
    elsewhere["metadata"]["namespace"] = json!("other");
    let rows = [
        (widget("taken"), 409, "widgets.example.com \"taken\" already exists"),
        (
            with("/kind", json!("Gadget")),
            422,
            "Gadget.example.com \"a\" is invalid: kind: Invalid value: \"Gadget\": must be Widget",
        ),
        (
            with("/apiVersion", json!("example.com/v2")),
            400,
            "the API version in the data (example.com/v2) does not match the expected API version (example.com/v1)",
        ),
        (
            with("/metadata", json!({})),
            422,
            "Widget.example.com \"\" is invalid: metadata.name: Required value: name or generateName is required",
        ),
        (versioned, 500, "resourceVersion should not be set on objects to be created"),
        (
            elsewhere,
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            with("/spec/color", json!("RED")),
            422,
            "Widget.example.com \"a\" is invalid: spec.color: Invalid value: \"RED\": spec.color in body should match '^[a-z]+$'",
        ),
        (
            with("/metadata/name", json!(5)),
            400,
            "Widget in version \"v1\" cannot be handled as a Widget: json: cannot unmarshal number into Go struct field ObjectMeta.name of type string",
        ),
    ];

    for (body, code, message) in rows {
        let (found, status) = server.post(WIDGETS, body).await;
        assert_eq!((found.as_u16(), status["message"].as_str().unwrap()), (code, message));
        assert_eq!(status["kind"], "Status");
    }
}

#[tokio::test]
async fn malformed_requests_get_the_status_of_kubernetes() {
    let server = TestServer::with_widgets().await;
    let json = "application/json";
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(4 << 20));
    let rows = [
        ("POST", WIDGETS, json, "{\"a\":", 400),
        ("POST", WIDGETS, json, "[]", 400),
        ("POST", WIDGETS, "application/yaml", "a: [", 400),
        ("POST", WIDGETS, "text/plain", "{}", 415),
        ("POST", WIDGETS, json, large.as_str(), 413),
        ("PATCH", &format!("{WIDGETS}/a"), json, "{}", 415),
        ("PATCH", &format!("{WIDGETS}/a?force=true"), MERGE, "{}", 422),
        ("PATCH", &format!("{WIDGETS}/a"), APPLY, "{}", 422),
        ("GET", &format!("{WIDGETS}?labelSelector=a+in+(b"), "", "", 400),
        ("GET", &format!("{WIDGETS}?fieldSelector=spec.size=1"), "", "", 400),
        ("GET", &format!("{WIDGETS}?limit=1&continue=abc"), "", "", 400),
        ("GET", &format!("{WIDGETS}?resourceVersion=abc"), "", "", 400),
        ("GET", "/api/v1/namespaces/default/nope", "", "", 404),
        ("GET", "/apis/nope.example.com/v1/x", "", "", 404),
        ("GET", &format!("{WIDGETS}/a/nope"), "", "", 404),
        ("POST", &format!("{WIDGETS}?dryRun=Some"), json, "{}", 422),
        ("POST", &format!("{WIDGETS}?fieldValidation=Some"), json, "{}", 422),
        ("DELETE", "/version", "", "", 405),
    ];

    for (method, path, kind, body, code) in rows {
        let (found, status) = server.send(method, path, kind, body.to_owned()).await;
        assert_eq!(found.as_u16(), code, "{method} {path}: {status}");
    }
}

#[tokio::test]
async fn unknown_fields_are_dropped_warned_about_or_rejected() {
    let server = TestServer::with_widgets().await;
    let body = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"b"},"spec":{"color":"red","zip":1,"color":"blue"}}"#;
    let (code, status) =
        server.send("POST", &format!("{WIDGETS}?fieldValidation=Strict"), "application/json", body).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    let message = "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: duplicate field \"spec.color\", unknown field \"spec.zip\"";
    assert_eq!(status["message"], message);
    let response = server.response("POST", &format!("{WIDGETS}?dryRun=All"), "application/json", body).await;
    let warnings: Vec<_> = response.headers().get_all("warning").iter().collect();
    assert_eq!(
        warnings,
        ["299 - \"duplicate field \\\"spec.color\\\"\"", "299 - \"unknown field \\\"spec.zip\\\"\""]
    );
    let (code, _) = server.get(&format!("{WIDGETS}/b")).await;
    assert_eq!(code, StatusCode::NOT_FOUND, "a dry run stores nothing");
}

#[tokio::test]
async fn an_update_requires_the_current_version() {
    let server = TestServer::with_widgets().await;
    let (_, first) = server.post(WIDGETS, widget("a")).await;
    let path = format!("{WIDGETS}/a");
    let mut changed = first.clone();
    changed["spec"]["size"] = json!(5);
    changed["status"] = json!({"phase": "not through here"});
    let (code, second) = server.put(&path, changed.clone()).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(second["metadata"]["generation"], 2);
    assert_eq!(second.get("status"), None);
    let (code, status) = server.put(&path, changed).await;
    assert_eq!((code, status["reason"].as_str()), (StatusCode::CONFLICT, Some("Conflict")));
    let (code, _) = server.put(&path, widget("a")).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "a custom resource needs a version");
    let (_, same) = server.put(&path, second.clone()).await;
    assert_eq!(same, second, "what changes nothing is not written");
    server.post(MAPS, map("m")).await;
    assert_eq!(server.put(&format!("{MAPS}/m"), map("m")).await.0, StatusCode::OK, "a ConfigMap needs none");
}

#[tokio::test]
async fn status_and_scale_are_written_through_their_subresources() {
    let server = TestServer::with_widgets().await;
    server.post(WIDGETS, widget("a")).await;
    let patch = json!({"status": {"phase": "Ready"}, "spec": {"color": "green"}});
    let (_, object) = server.patch(&format!("{WIDGETS}/a/status"), MERGE, patch).await;
    assert_eq!(object["status"]["phase"], "Ready");
    assert_eq!(object["spec"]["color"], "red");
    assert_eq!(object["metadata"]["generation"], 1);
    let (code, _) = server.get(&format!("{WIDGETS}/a/scale")).await;
    assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR, "there is no replica count to scale yet");
    let (code, scale) =
        server.patch(&format!("{WIDGETS}/a/scale"), MERGE, json!({"spec": {"replicas": 4}})).await;
    assert_eq!((code, &scale["spec"]["replicas"]), (StatusCode::OK, &json!(4)));
    assert_eq!(server.get(&format!("{WIDGETS}/a")).await.1["spec"]["replicas"], 4);
}

#[tokio::test]
async fn applies_own_fields_conflict_and_release_them() {
    let server = TestServer::with_widgets().await;
    let apply = |spec: Value| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec});
    let path = |manager: &str| format!("{WIDGETS}/a?fieldManager={manager}");
    let (code, _) = server.patch(&path("one"), APPLY, apply(json!({"color": "red", "size": 9}))).await;
    assert_eq!(code, StatusCode::CREATED);
    let (code, status) = server.patch(&path("two"), APPLY, apply(json!({"color": "blue"}))).await;
    assert_eq!(code, StatusCode::CONFLICT);
    assert_eq!(status["message"], "Apply failed with 1 conflict: conflict with \"one\": .spec.color");
    let (code, _) =
        server.patch(&format!("{}&force=true", path("two")), APPLY, apply(json!({"color": "blue"}))).await;
    assert_eq!(code, StatusCode::OK);
    let (_, object) = server.patch(&path("one"), APPLY, apply(json!({}))).await;

    assert_eq!(
        object["spec"],
        json!({"color": "blue", "size": 3}),
        "a field that is no longer applied gets its default"
    );
}

#[tokio::test]
async fn lists_select_and_continue_at_one_version() {
    let server = TestServer::with_widgets().await;
    for name in ["a", "b", "c", "d", "e"] {
        let mut object = widget(name);
        object["metadata"]["labels"] = json!({"odd": if "ace".contains(name) { "yes" } else { "no" }});
        server.post(WIDGETS, object).await;
    }

    let names = |list: &Value| -> Vec<String> {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };

    let rows = [
        ("labelSelector=odd%3Dyes", vec!["a", "c", "e"]),
        ("labelSelector=odd+notin+(yes)", vec!["b", "d"]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        ("fieldSelector=spec.color%3Dblue", vec![]),
    ];

    for (query, expected) in rows {
        assert_eq!(names(&server.get(&format!("{WIDGETS}?{query}")).await.1), expected, "{query}");
    }
    let (_, first) = server.get(&format!("{WIDGETS}?limit=2")).await;
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    server.delete(&format!("{WIDGETS}/d"), json!({})).await;
    server.post(WIDGETS, widget("bb")).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = server.get(&format!("{WIDGETS}?limit=9&continue={token}")).await;
    assert_eq!(names(&rest), ["c", "d", "e"], "the second page is of the time of the first");
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn finalizers_block_deletion_until_they_are_removed() {
    let server = TestServer::with_widgets().await;
    let mut object = widget("a");
    object["metadata"]["finalizers"] = json!(["example.com/wait"]);
    server.post(WIDGETS, object).await;
    let path = format!("{WIDGETS}/a");
    let (code, object) = server.delete(&path, json!({})).await;
    assert_eq!(code, StatusCode::OK);
    assert!(object["metadata"]["deletionTimestamp"].is_string());
    let (code, _) = server
        .patch(&path, MERGE, json!({"metadata": {"finalizers": ["example.com/wait", "example.com/more"]}}))
        .await;

    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "no finalizer can be added during deletion");
    let (code, status) = server.post(WIDGETS, widget("a")).await;
    assert_eq!(code, StatusCode::CONFLICT);
    assert_eq!(status["message"], "object is being deleted: widgets.example.com \"a\" already exists");
    server.patch(&path, MERGE, json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(server.get(&path).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn deletes_respect_preconditions() {
    let server = TestServer::new().await;
    let (_, object) = server.post(MAPS, map("m")).await;
    let path = format!("{MAPS}/m");
    for condition in [json!({"uid": "x"}), json!({"resourceVersion": "1"})] {
        let (code, _) = server.delete(&path, json!({"preconditions": condition})).await;
        assert_eq!(code, StatusCode::CONFLICT);
    }
    let (code, status) =
        server.delete(&path, json!({"preconditions": {"uid": object["metadata"]["uid"]}})).await;
    assert_eq!((code, status["status"].as_str()), (StatusCode::OK, Some("Success")));
    let (code, _) = server.delete(&path, json!({})).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn names_are_generated() {
    let server = TestServer::new().await;
    let mut object = map("");
    object["metadata"] = json!({"generateName": "gen-"});
    let (_, one) = server.post(MAPS, object.clone()).await;
    let (_, second) = server.post(MAPS, object).await;
    let name = one["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("gen-") && name.len() == 9, "{name}");
    assert_ne!(one["metadata"]["name"], second["metadata"]["name"]);
}

#[tokio::test]
async fn collections_are_deleted_by_selector() {
    let server = TestServer::new().await;
    for name in ["a", "b"] {
        let mut object = map(name);
        object["metadata"]["labels"] = json!({"name": name});
        server.post(MAPS, object).await;
    }
    let (code, _) = server.delete(&format!("{MAPS}?labelSelector=name%3Da"), json!({})).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(server.get(&format!("{MAPS}/a")).await.0, StatusCode::NOT_FOUND);
    assert_eq!(server.get(&format!("{MAPS}/b")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn both_groups_serve_the_same_events() {
    let server = TestServer::new().await;
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "R", "note": "n", "type": "Normal",
        "regarding": {"kind": "Secret", "name": "s", "namespace": "default"}, "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/c", "reportingInstance": "i", "action": "A",
    });
    let (code, _) = server.post("/apis/events.k8s.io/v1/namespaces/default/events", event).await;
    assert_eq!(code, StatusCode::CREATED);
    let (_, old) = server.get("/api/v1/namespaces/default/events/e").await;
    assert_eq!((&old["message"], &old["involvedObject"]["name"]), (&json!("n"), &json!("s")));
    let (_, other) = server.get("/apis/events.k8s.io/v1/namespaces/default/events/e").await;
    assert_eq!(other["note"], "n");
}

#[tokio::test]
async fn tables_show_printer_columns() {
    let server = TestServer::with_widgets().await;
    server.post(WIDGETS, widget("a")).await;
    let request =
        http::Request::get(WIDGETS).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let request = request.body(axum::body::Body::empty()).unwrap();
    let response = tower::ServiceExt::oneshot(server.api.service(), request).await.unwrap();
    let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    let table: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(table["rows"][0]["cells"], json!(["a", "red"]));
    assert_eq!(table["columnDefinitions"][1]["name"], "Color");
}
