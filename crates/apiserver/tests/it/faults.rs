//! Fault injection.

use axum::body::Body;
use http::{Request, StatusCode};
use serde_json::json;
use tower::{Layer as _, ServiceExt as _};
use vitistack_apiserver::faults::{Crash, FaultLayer, FaultPlan};

use crate::harness::{MAPS, TestServer, map};

async fn create(server: &TestServer, layer: &FaultLayer, name: &str) -> Result<StatusCode, Crash> {
    let service = layer.layer(server.api.service());
    let request = Request::post(MAPS).header("content-type", "application/json");
    let response = service.oneshot(request.body(Body::from(map(name).to_string())).unwrap()).await?;
    Ok(response.status())
}

fn layer(plan: &str) -> FaultLayer {
    FaultLayer::new(plan.parse::<FaultPlan>().unwrap())
}

#[tokio::test]
async fn each_fault_has_its_effect() {
    let server = TestServer::new().await;
    let rows = [
        ("crash-before=1", Err(Crash { applied: false }), false),
        ("crash-after=1", Err(Crash { applied: true }), true),
        ("conflict=1", Ok(StatusCode::CONFLICT), false),
        ("invalid=1", Ok(StatusCode::UNPROCESSABLE_ENTITY), false),
        ("busy=1", Ok(StatusCode::TOO_MANY_REQUESTS), false),
        ("error=1", Ok(StatusCode::INTERNAL_SERVER_ERROR), false),
        ("timeout=1", Ok(StatusCode::GATEWAY_TIMEOUT), false),
        ("cut=1", Ok(StatusCode::CREATED), true),
    ];

    for (plan, expected, stored) in rows {
        let name = plan.split('=').next().unwrap();
        assert_eq!(create(&server, &layer(plan), name).await, expected, "{plan}");
        assert_eq!(server.get(&format!("{MAPS}/{name}")).await.0.is_success(), stored, "{plan}");
    }
}

#[tokio::test]
async fn a_stale_read_returns_a_previous_response() {
    let server = TestServer::new().await;
    let service = layer("stale=1").layer(server.api.service());
    let read = async || {
        let request = Request::get(MAPS).body(Body::empty()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        serde_json::from_slice::<serde_json::Value>(&bytes).unwrap()["items"].as_array().unwrap().len()
    };
    assert_eq!(read().await, 0);
    server.post(MAPS, map("m")).await;
    assert_eq!(read().await, 0);
}

#[tokio::test]
async fn watch_events_are_dropped_duplicated_or_cut_off() {
    let server = TestServer::new().await;
    for name in ["a", "b", "c"] {
        server.post(MAPS, map(name)).await;
    }
    for (plan, lines) in [("seed=1", 3), ("drop=1", 0), ("duplicate=1", 6), ("cut=1", 0), ("delay=1", 3)] {
        let service = layer(plan).layer(server.api.service());
        let request =
            Request::get(format!("{MAPS}?watch=true&timeoutSeconds=1")).body(Body::empty()).unwrap();
        let response = service.oneshot(request).await.unwrap();
        let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        assert_eq!(std::str::from_utf8(&bytes).unwrap().lines().count(), lines, "{plan}");
    }
}

#[tokio::test]
async fn the_same_plan_is_reproducible() {
    let plan = "seed=5 error=0.3000 conflict=0.2000";
    let mut runs = Vec::new();
    for _ in 0..2 {
        let server = TestServer::new().await;
        let layer = layer(plan);
        let service = layer.layer(server.api.service());
        let mut codes = Vec::new();
        for index in 0..40 {
            let body = json!({"metadata": {"name": format!("m{index}")}}).to_string();
            let request = Request::post(MAPS)
                .header("content-type", "application/json")
                .body(Body::from(body))
                .unwrap();
            codes.push(service.clone().oneshot(request).await.unwrap().status());
        }
        runs.push(codes);
    }

    assert_eq!(runs[0], runs[1]);
    assert!(runs[0].contains(&StatusCode::CREATED) && runs[0].contains(&StatusCode::INTERNAL_SERVER_ERROR));
}
