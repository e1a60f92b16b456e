//! How an operator manages the children of an object.

use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::stage::{Stage, assert_contains, eventually, shared_server};

#[tokio::test]
async fn children_are_created_repaired_pruned_and_deleted() {
    let stage = Stage::new(shared_server().await, "children").await;
    let _operator = stage.operator(&[]);
    stage.create("one", "hello", 2).await;
    stage.await_text("one-0", "hello").await;
    stage.await_text("one-1", "hello").await;
    stage.await_ready("one", true).await;

    stage.maps.delete("one-0", &DeleteParams::default()).await.unwrap();
    stage.await_text("one-0", "hello").await;

    let foreign_change = Patch::Merge(json!({"data": {"text": "changed", "mine": "stays"}}));
    stage.maps.patch("one-1", &PatchParams::default(), &foreign_change).await.unwrap();
    stage.await_text("one-1", "hello").await;
    let repaired = stage.maps.get("one-1").await.unwrap();
    assert_eq!(repaired.data.unwrap().get("mine").map(String::as_str), Some("stays"), "not ours to remove");

    stage.patch("one", json!({"text": "goodbye", "copies": 1})).await;
    stage.await_text("one-0", "goodbye").await;
    eventually("one-1 to be pruned", async || stage.text("one-1").await.is_none().then_some(())).await;

    stage.widgets.delete("one", &DeleteParams::default()).await.unwrap();
    eventually("one to be deleted", async || {
        stage.widgets.get_opt("one").await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!(stage.text("one-0").await, None, "its children are deleted first");
}

#[tokio::test]
async fn an_object_of_another_owner_blocks_and_is_not_changed() {
    let stage = Stage::new(shared_server().await, "foreign").await;
    let theirs = serde_json::from_value(json!({"metadata": {"name": "one-0"}, "data": {"text": "theirs"}}));
    let before = stage.maps.create(&PostParams::default(), &theirs.unwrap()).await.unwrap();
    let _operator = stage.operator(&[]);
    stage.create("one", "ours", 1).await;
    let message = stage.await_ready("one", false).await;
    assert_contains(&message, &["ConfigMap foreign/one-0", "delete it or choose another name"]);
    assert_contains(&stage.await_event("one", "Blocked").await.note.unwrap(), &["one-0"]);
    let after = stage.maps.get("one-0").await.unwrap();
    assert_eq!(after.resource_version(), before.resource_version());

    stage.maps.delete("one-0", &DeleteParams::default()).await.unwrap();
    stage.await_ready("one", true).await;
    stage.await_text("one-0", "ours").await;
}

#[tokio::test]
async fn an_undecodable_object_gets_an_event_and_others_are_reconciled() {
    let stage = Stage::new(shared_server().await, "poisoned").await;
    let poison = serde_json::from_value(json!({
        "apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "bad"},
        "spec": {"text": "x", "copies": "many"},
    }));
    stage.loose_widgets().create(&PostParams::default(), &poison.unwrap()).await.unwrap();
    let operator = stage.operator(&[]);
    stage.create("good", "hello", 1).await;
    stage.await_ready("good", true).await;
    let event = stage.await_event("bad", "Undecodable").await;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_contains(&event.note.unwrap(), &["many", "Expected usize"]);
    assert_contains(
        &operator.metrics("http", None).await.1,
        &["vitistack_undecodable_objects{kind=\"Widget\"} 1"],
    );

    stage.patch("good", json!({"text": "still working"})).await;
    stage.await_text("good-0", "still working").await;
    let fix = Patch::Merge(json!({"spec": {"copies": 1}}));
    stage.loose_widgets().patch("bad", &PatchParams::default(), &fix).await.unwrap();
    stage.await_ready("bad", true).await;
    assert_contains(
        &operator.metrics("http", None).await.1,
        &["vitistack_undecodable_objects{kind=\"Widget\"} 0"],
    );
}

#[tokio::test]
async fn a_panic_is_an_error_of_its_object_only() {
    let stage = Stage::new(shared_server().await, "panic").await;
    let operator = stage.operator(&[]);
    stage.create("bad", "panic", 1).await;
    let line = operator.await_line("failed: panicked: requested panic").await;
    for (name, value) in
        [("level", "warn"), ("controller", "Widget"), ("widget", "bad"), ("namespace", "panic")]
    {
        assert_eq!(line[name], value, "{line}");
    }
    stage.create("good", "hello", 1).await;
    stage.await_ready("good", true).await;
    assert_contains(
        &operator.metrics("http", None).await.1,
        &["widget_operator_reconciliation_errors_total{controller=\"Widget\",error_type=\"Panic\"}"],
    );
    operator.await_probe("/healthz", 200).await;
    stage.patch("bad", json!({"text": "fixed"})).await;
    stage.await_ready("bad", true).await;
}
