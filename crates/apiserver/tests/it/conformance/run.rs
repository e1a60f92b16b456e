//! Sends the requests of a case and collects the responses, in the same way for both servers.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures::StreamExt;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use serde_json::{Value, json};

use super::{
    case::{AnyMessage, Call, Case, Expect, Step, Until},
    normalize::{Normalizer, shape},
};

/// The timeout of one response or one awaited condition, for slow machines.
const PATIENCE: Duration = Duration::from_mins(1);

/// The number of cases that run concurrently.
const CONCURRENCY: usize = 8;

/// Numbers the namespaces of one process.
static NAMESPACES: AtomicU64 = AtomicU64::new(0);

/// A response before it is normalized.
struct RawResponse {
    status: u16,
    media_type: Option<String>,
    warnings: Vec<String>,
    body: Value,
}

/// Runs all cases and returns the responses of each, in the order of the cases.
pub async fn run(client: &Client, cases: &[Case]) -> Vec<Vec<Expect>> {
    let mut needed: Vec<&String> = cases.iter().flat_map(|case| &case.needs).collect();
    needed.sort();
    needed.dedup();
    for name in needed {
        install(client, &super::case::crd(name)).await;
    }
    let mut responses: Vec<(usize, Vec<Expect>)> = futures::stream::iter(cases)
        .enumerate()
        .map(async |(number, case)| (number, run_case(client, case).await))
        .buffer_unordered(CONCURRENCY)
        .collect()
        .await;
    responses.sort_by_key(|(number, _)| *number);
    responses.into_iter().map(|(_, responses)| responses).collect()
}

/// Creates a shared CRD if it is missing and waits until its objects are served. A rejected one shows up in
/// every case that requires it.
async fn install(client: &Client, crd: &Value) {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let create = Call { request: format!("POST {path}"), body: Some(crd.clone()), ..Call::default() };
    let created = send(client, &create).await;
    if ![201, 409].contains(&created.status) {
        super::print(&format!("rejected: {}", created.body["message"]));
        return;
    }
    let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap();
    for version in crd["spec"]["versions"].as_array().unwrap() {
        let version = version["name"].as_str().unwrap();
        let request = format!("GET /apis/{}/{version}/{}", text("/spec/group"), text("/spec/names/plural"));
        let list = Call { request, ..Call::default() };
        send_until(client, &list, &Until { status: Some(200), contains: None }).await;
    }
}

/// Runs one case in its own namespace.
async fn run_case(client: &Client, case: &Case) -> Vec<Expect> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let namespace = format!("case-{since_epoch:x}-{}", NAMESPACES.fetch_add(1, Ordering::Relaxed));
    let create = Call {
        request: "POST /api/v1/namespaces".to_owned(),
        body: Some(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})),
        ..Call::default()
    };
    let created = send(client, &create).await;
    assert_eq!(created.status, 201, "{}: {}", case.name, created.body);

    let mut normalizer = Normalizer::new(&namespace, case.managed_fields);
    let mut bodies = Vec::new();
    let mut responses = Vec::new();
    for step in &case.steps {
        let answer = run_step(client, step, &namespace, &bodies).await;
        responses.push(normalized(&mut normalizer, step, &answer));
        bodies.push(answer.body);
    }
    responses
}

async fn run_step(client: &Client, step: &Step, namespace: &str, bodies: &[Value]) -> RawResponse {
    let fill = |call: &Call| filled(call, namespace, bodies);
    let call = fill(&step.call());
    if let Some(take) = step.take {
        let meanwhile: Vec<Call> = step.meanwhile.iter().map(fill).collect();
        return watch(client, &call, take, &meanwhile).await;
    }
    match &step.until {
        Some(until) => send_until(client, &call, until).await,
        None => send(client, &call).await,
    }
}

fn normalized(normalizer: &mut Normalizer, step: &Step, answer: &RawResponse) -> Expect {
    let mut body = match (&answer.body, step.take) {
        (Value::Array(events), Some(_)) => events.iter().map(|event| normalizer.event(event)).collect(),
        _ => normalizer.body(&answer.body),
    };

    if step.shape {
        body = shape(&body);
    }
    if !step.pick.is_empty() {
        let found =
            |pointer: &String| (pointer.clone(), body.pointer(pointer).cloned().unwrap_or(Value::Null));
        body = step.pick.iter().map(found).collect();
    }

    if let Some(AnyMessage::Any) = step.message {
        forget_messages(&mut body);
    }
    let warnings = answer.warnings.iter().map(|warning| normalizer.text(warning)).collect();
    let (body, events) = match (body, step.take) {
        (Value::Array(events), Some(_)) => (Value::Null, Some(events)),
        (body, _) => (body, None),
    };

    Expect { status: answer.status, warnings, media_type: answer.media_type.clone(), body, events }
}

/// Removes the messages from an error and its causes.
fn forget_messages(body: &mut Value) {
    if let Some(message) = body.get_mut("message") {
        *message = json!("<any>");
    }
    let causes = body.pointer_mut("/details/causes").and_then(Value::as_array_mut);
    causes.into_iter().flatten().for_each(forget_messages);
}

async fn send_until(client: &Client, call: &Call, until: &Until) -> RawResponse {
    let repeat = async {
        loop {
            let answer = send(client, call).await;
            let status = until.status.is_none_or(|status| status == answer.status);
            let contains =
                until.contains.as_ref().is_none_or(|text| answer.body.to_string().contains(text.as_str()));
            if status && contains {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // The last response shows what is missing; it is compared like any other.
    match tokio::time::timeout(PATIENCE / 4, repeat).await {
        Ok(answer) => answer,
        Err(_) => send(client, call).await,
    }
}

async fn send(client: &Client, call: &Call) -> RawResponse {
    let (parts, body) = match open(client, call).await {
        Ok(response) => response.into_parts(),
        Err(error) => return no_response(error),
    };
    match tokio::time::timeout(PATIENCE / 4, body.collect()).await {
        Ok(Ok(bytes)) => answer(&parts, parse(&bytes.to_bytes())),
        Ok(Err(error)) => no_response(error.to_string()),
        Err(_) => no_response("the response does not end".to_owned()),
    }
}

/// Reads a watch until enough events arrived, the server ended it, or the timeout expired.
async fn watch(client: &Client, call: &Call, take: usize, meanwhile: &[Call]) -> RawResponse {
    let (parts, body) = match open(client, call).await {
        Ok(response) => response.into_parts(),
        Err(error) => return no_response(error),
    };

    for call in meanwhile {
        let answer = send(client, call).await;
        assert!(answer.status < 300, "{}: {}", call.request, answer.body);
    }

    if parts.status != 200 {
        let bytes = body.collect().await.unwrap().to_bytes();
        return answer(&parts, parse(&bytes));
    }

    let mut chunks = body.into_data_stream();
    let mut buffer = Vec::new();
    let mut events = Vec::new();
    let read = async {
        while take == 0 || events.len() < take {
            let Some(Ok(chunk)) = chunks.next().await else { break };
            buffer.extend_from_slice(&chunk);
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                events.push(parse(&line));
            }
        }
    };

    let ended = tokio::time::timeout(PATIENCE / 4, read).await.is_ok();
    if !ended {
        events.push(json!({"type": "no more events came"}));
    }

    if take > 0 {
        events.truncate(take.max(1));
    }
    answer(&parts, Value::Array(events))
}

async fn open(client: &Client, call: &Call) -> Result<Response<Body>, String> {
    let (method, path) =
        call.request.split_once(' ').unwrap_or_else(|| panic!("no method in {:?}", call.request));
    let mut request = Request::builder().method(method).uri(path).header("User-Agent", "conformance/1");
    let has = |name: &str| call.headers.keys().any(|header| header.eq_ignore_ascii_case(name));
    if !has("Accept") {
        request = request.header("Accept", "application/json");
    }

    if let (Some(patch), false) = (call.patch, has("Content-Type")) {
        request = request.header("Content-Type", patch.content_type());
    } else if (call.body.is_some() || call.raw.is_some()) && !has("Content-Type") {
        request = request.header("Content-Type", "application/json");
    }

    for (name, value) in &call.headers {
        request = request.header(name, value);
    }
    let body = match (&call.raw, &call.body) {
        (Some(raw), _) => raw.clone().into_bytes(),
        (None, Some(body)) => body.to_string().into_bytes(),
        (None, None) => Vec::new(),
    };

    let request = request.body(Body::from(body)).unwrap();
    let answer = tokio::time::timeout(PATIENCE, client.send(request)).await;
    answer.map_err(|_| "no response arrived".to_owned())?.map_err(|error| error.to_string())
}

/// Returns a placeholder for a missing response, so that the report shows where it is missing.
fn no_response(error: String) -> RawResponse {
    RawResponse { status: 0, media_type: None, warnings: Vec::new(), body: Value::String(error) }
}

fn answer(parts: &http::response::Parts, body: Value) -> RawResponse {
    let header = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let media_type =
        parts.headers.get("Content-Type").map(header).filter(|media_type| media_type != "application/json");
    let warnings = parts.headers.get_all("Warning").iter().map(header).collect();
    RawResponse { status: parts.status.as_u16(), media_type, warnings, body }
}

fn parse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| match String::from_utf8_lossy(bytes).into_owned() {
        text if text.is_empty() => Value::Null,
        text => Value::String(text),
    })
}

/// Returns the request with its placeholders filled in: `$NS`, `${2.metadata.uid}` (from the response of step
/// 2), `${x*1000}`.
fn filled(call: &Call, namespace: &str, bodies: &[Value]) -> Call {
    let text = |text: &str| fill_text(text, namespace, bodies);
    Call {
        request: text(&call.request),
        headers: call.headers.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
        body: call.body.as_ref().map(|body| fill_value(body, namespace, bodies)),
        raw: call.raw.as_ref().map(|raw| text(raw)),
        patch: call.patch,
    }
}

fn fill_value(value: &Value, namespace: &str, bodies: &[Value]) -> Value {
    match value {
        Value::String(text) => Value::String(fill_text(text, namespace, bodies)),
        Value::Array(items) => items.iter().map(|item| fill_value(item, namespace, bodies)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (fill_text(key, namespace, bodies), fill_value(value, namespace, bodies)))
            .collect(),
        other => other.clone(),
    }
}

fn fill_text(text: &str, namespace: &str, bodies: &[Value]) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (inside, after) = split_at_brace(after).unwrap_or_else(|| panic!("no }} in {text:?}"));
        out.push_str(before);
        if let Some((letters, count)) = inside.rsplit_once('*') {
            out.push_str(&letters.repeat(count.parse().unwrap()));
        } else {
            out.push_str(&from_response(inside, bodies));
        }
        rest = after;
    }
    out.push_str(rest);
    out.replace("$NS", namespace)
}

/// Returns the text before and after the closing brace.
fn split_at_brace(text: &str) -> Option<(&str, &str)> {
    let mut depth = 1;
    for (position, letter) in text.char_indices() {
        depth += match letter {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        if depth == 0 {
            return Some((&text[..position], &text[position + 1..]));
        }
    }
    None
}

/// Returns the value at a dotted path that starts with the number of a step. If the response does not have
/// it, returns the path itself, so that the case continues and shows where it failed.
fn from_response(path: &str, bodies: &[Value]) -> String {
    let mut parts = path.split('.');
    let step: usize =
        parts.next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no step in {path:?}"));
    let pointer: Vec<&str> = std::iter::once("").chain(parts).collect();
    match bodies[step - 1].pointer(&pointer.join("/")) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_from_the_namespace_and_earlier_responses() {
        let bodies = [json!({"metadata": {"resourceVersion": "7"}, "items": [{"size": 3}]})];
        let filled = fill_text(
            "/n/$NS?rv=${1.metadata.resourceVersion}&s=${1.items.0.size}&x=${ab*2}",
            "n-1",
            &bodies,
        );
        assert_eq!(filled, "/n/n-1?rv=7&s=3&x=abab");
        assert_eq!(fill_text("[${{a},*2}]", "n-1", &bodies), "[{a},{a},]");
    }
}
