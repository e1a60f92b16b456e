//! Reading many objects, at once or in pages.

use base64::{
    Engine as _,
    engine::general_purpose::{GeneralPurpose, NO_PAD, URL_SAFE_NO_PAD},
};
use bytes::Bytes;
use serde_json::{Value, json};
use vitistack_schema::Cause;

use crate::{
    reply::{Form, Reply},
    selector::{FieldSelector, LabelSelector, SelectorError},
    server::{Call, Server},
    status::Failure,
    store::{Compacted, Entry, Page},
};

/// The encoding of continue tokens.
const ENCODING: &str = "meta.k8s.io/v1";
/// Accepts tokens with trailing bits in their last character, as Go does.
const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&base64::alphabet::URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// How long a list waits for a version that has not been reached yet, as in Kubernetes.
const WAIT_FOR_VERSION: std::time::Duration = std::time::Duration::from_secs(3);

/// The selectors of a request.
#[derive(Debug, Default)]
pub struct Filter {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Filter {
    /// Parses the selectors of a request.
    pub fn parse(call: &Call) -> Result<Self, Failure> {
        let labels = LabelSelector::parse(call.options.text("labelSelector").unwrap_or_default())?;
        let mut fields = call.options.text("fieldSelector").unwrap_or_default().to_owned();
        if let Some(name) = &call.target.name {
            // A watch of one object.
            fields = format!("metadata.name={name}");
        }
        let fields = FieldSelector::parse(&fields, &call.resource.selectable)
            .map_err(|error| selector_failure(call, &error))?;
        Ok(Self { labels, fields })
    }

    /// Whether they match everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether they match an object.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        self.labels.matches(object) && self.fields.matches(object)
    }
}

/// Returns the 400 response for a field selector. Kinds without selectable fields share one message.
fn selector_failure(call: &Call, error: &SelectorError) -> Failure {
    match error {
        SelectorError::FindField { field }
            if call.resource.kind_rules().is_some_and(|kind| kind.fields.is_empty()) =>
        {
            let known = "only \"metadata.name\", \"metadata.namespace\"";
            Failure::bad_request(format!("\"{field}\" is not a known field selector: {known}"))
        }
        error => Failure::bad_request(error.to_string()),
    }
}

/// Returns the 400 response for a version that is not a number.
#[must_use]
pub fn bad_version(text: &str) -> Failure {
    Failure::bad_request(format!(
        "invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
    ))
}

/// The continuation of a list: the version of its first page and the last key.
#[derive(Debug, PartialEq, Eq)]
struct Continue {
    version: u64,
    after: String,
}

impl Continue {
    fn encode(&self) -> String {
        let token = json!({"v": ENCODING, "rv": self.version, "start": format!("{}\u{0}", self.after)});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode(text: &str) -> Result<Self, Failure> {
        let bad = |why: &str| {
            Failure::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = LENIENT.decode(text.trim_end_matches('=')).map_err(|error| bad(&error.to_string()))?;
        let token = crate::body::json(&bytes).map_err(|why| bad(&why))?.value;
        let encoding = token.get("v").and_then(Value::as_str).unwrap_or_default();

        if encoding != ENCODING {
            return Err(bad(&format!("server does not recognize this encoded version {encoding}")));
        }
        let version = token.get("rv").and_then(Value::as_u64).unwrap_or_default();
        if version == 0 {
            return Err(bad(&format!("incorrect encoded start resourceVersion 0 (version {ENCODING})")));
        }

        let start = token.get("start").and_then(Value::as_str).unwrap_or_default();
        if start.is_empty() {
            return Err(bad(&format!("encoded start key empty (version {ENCODING})")));
        }
        Ok(Self { version, after: start.trim_end_matches('\u{0}').to_owned() })
    }
}

struct ListRequest {
    filter: Filter,
    limit: Option<usize>,
    from: Option<Continue>,
    at: Option<u64>,
}

/// Validates the combination of `resourceVersion` and related parameters.
pub fn check_version_options(call: &Call, watching: bool) -> Result<(), Failure> {
    let how = call.options.text("resourceVersionMatch");
    let initial = call.options.flag("sendInitialEvents").is_some();
    let version = call.options.text("resourceVersion");
    let forbidden = |message: &str| Cause::forbidden("resourceVersionMatch", message);
    let unsupported =
        |how: &str, supported: &[&str]| Cause::not_supported("resourceVersionMatch", &json!(how), supported);
    let mut causes = Vec::new();

    if watching && initial && how != Some("NotOlderThan") {
        causes.push(forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
    }
    if let Some(how) = how {
        if watching && !initial {
            let message = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(forbidden(message));
        }
        if watching && how != "NotOlderThan" {
            causes.push(unsupported(how, &["NotOlderThan"]));
        }
        if !watching && version.is_none() {
            causes.push(forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"));
        }
        if call.options.text("continue").is_some() {
            causes.push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
        }
        if !watching && !matches!(how, "Exact" | "NotOlderThan") {
            causes.push(unsupported(how, &["Exact", "NotOlderThan", ""]));
        }
        if !watching && how == "Exact" && version == Some("0") {
            causes.push(forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
        }
    }

    if !watching && initial {
        causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    if causes.is_empty() { Ok(()) } else { Err(Failure::invalid_options("ListOptions", &causes)) }
}

async fn parse_request(server: &Server, call: &Call) -> Result<ListRequest, Failure> {
    check_version_options(call, false)?;
    let filter = Filter::parse(call)?;
    let limit = call
        .options
        .number("limit")?
        .and_then(|limit| usize::try_from(limit).ok())
        .filter(|limit| *limit > 0);

    call.options.number("timeoutSeconds")?;
    let from = call.options.text("continue").map(Continue::decode).transpose()?;
    let asked = call.options.text("resourceVersion");
    if from.is_some() && asked.is_some_and(|asked| asked != "0") {
        return Err(Failure::bad_request("specifying resource version is not allowed when using continue"));
    }

    let asked = asked.map(|text| text.parse::<u64>().map_err(|_| bad_version(text))).transpose()?;
    if let Some(asked) = asked {
        wait_for(server, asked).await?;
    }

    let exact = call.options.text("resourceVersionMatch") == Some("Exact")
        // Kubernetes treats a limit with a version as exact unless `resourceVersionMatch` is set.
        || (limit.is_some() && call.options.text("resourceVersionMatch").is_none());
    let at = match &from {
        Some(from) => Some(from.version),
        None => asked.filter(|asked| exact && *asked > 0),
    };
    Ok(ListRequest { filter, limit, from, at })
}

async fn wait_for(server: &Server, asked: u64) -> Result<(), Failure> {
    let step = std::time::Duration::from_millis(50);
    let mut waited = std::time::Duration::ZERO;
    while server.store.version() < asked {
        if waited >= WAIT_FOR_VERSION {
            return Err(Failure::version_too_large(asked, server.store.version()));
        }
        tokio::time::sleep(step).await;
        waited += step;
    }
    Ok(())
}

fn expired(_: Compacted, request: &ListRequest) -> Failure {
    let text = if request.from.is_some() {
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
    } else {
        "The resourceVersion for the provided list is too old."
    };
    Failure::expired(text)
}

/// Responds with the objects of a scope.
pub async fn list(server: &Server, call: &Call) -> Result<Reply, Failure> {
    super::get::check_include(call)?;
    let request = parse_request(server, call).await?;
    let after = request.from.as_ref().map(|from| from.after.as_str());
    // With a selector, the limit counts the matching objects, so the store cannot apply it.
    let limit = request.limit.filter(|_| request.filter.is_empty());
    let scope = call.scope();
    let page = match server.store.list(&scope, after, limit, request.at) {
        Ok(page) => page,
        Err(compacted) => {
            let mut failure = expired(compacted, &request);
            if let Some(from) = &request.from {
                let rest = Continue { version: server.store.version(), after: from.after.clone() };
                failure.continuation = Some(rest.encode());
            }
            return Err(failure);
        }
    };

    Ok(answer(server, call, page, &request))
}

fn answer(server: &Server, call: &Call, page: Page, request: &ListRequest) -> Reply {
    let version = page.version;
    let mut remaining = page.remaining;
    let mut entries = page.entries;
    let mut last = None;
    if !request.filter.is_empty() {
        let mut matching = Vec::new();
        let mut cut = false;
        for (path, entry) in entries {
            if !request.filter.matches(&call.resource.read_stored(&entry.bytes)) {
                continue;
            }
            if request.limit.is_some_and(|limit| matching.len() == limit) {
                cut = true;
                break;
            }
            matching.push((path, entry));
        }
        entries = matching;
        remaining = usize::from(cut);
    }

    if remaining > 0 {
        last = entries.last().map(|(path, _)| Continue { version, after: path.clone() }.encode());
    }
    let counted = (request.filter.is_empty() && last.is_some()).then_some(remaining);
    let mut metadata = list_metadata(version, last.as_deref(), counted);

    if call.accept.form == Form::Object
        && call.resource.kind_rules().is_none()
        && let Some(members) = metadata.as_object_mut()
    {
        // Kubernetes prints it for custom resources even if it is empty.
        members.entry("continue").or_insert_with(|| json!(""));
    }

    let entries: Vec<Entry> = entries.into_iter().map(|(_, entry)| entry).collect();
    shaped(server, call, &entries, &metadata)
}

fn list_metadata(version: u64, token: Option<&str>, remaining: Option<usize>) -> Value {
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if let Some(members) = metadata.as_object_mut() {
        if let Some(token) = token {
            members.insert("continue".to_owned(), token.into());
        }
        if let Some(remaining) = remaining {
            members.insert("remainingItemCount".to_owned(), remaining.into());
        }
    }
    metadata
}

/// Returns a list in the negotiated representation.
fn shaped(server: &Server, call: &Call, entries: &[Entry], metadata: &Value) -> Reply {
    let objects = || entries.iter().map(|entry| call.resource.read_stored(&entry.bytes));
    match call.accept.form {
        Form::Object => Reply::bytes(joined(call, entries.iter().map(|entry| &entry.bytes), metadata)),
        Form::Partial => {
            let items: Vec<Value> = objects().map(|object| crate::table::partial(&object)).collect();
            Reply::value(json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items,
            }))
        }
        Form::Table => {
            let include = super::get::include(call);
            let now = server.now();
            let rows: Vec<Value> =
                objects().map(|object| call.resource.columns.row(&object, include, now)).collect();
            Reply::value(call.resource.columns.table(&rows, metadata))
        }
    }
}

/// Returns a list as JSON, assembled from the stored JSON.
pub fn joined<'a>(call: &Call, objects: impl Iterator<Item = &'a Bytes>, metadata: &Value) -> Bytes {
    let resource = &call.resource;
    let mut text = Vec::with_capacity(4096);
    let head = format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\"items\":[",
        resource.list_kind,
        resource.api_version()
    );

    text.extend_from_slice(head.as_bytes());
    // Items of built-in kinds have no `apiVersion` and `kind`, as in Kubernetes.
    let bare = format!("{{\"apiVersion\":\"{}\",\"kind\":\"{}\",", resource.api_version(), resource.kind);
    for (index, bytes) in objects.enumerate() {
        if index > 0 {
            text.push(b',');
        }
        let object = if resource.kind_rules().is_none() || resource.serves_as_stored(bytes) {
            super::get::text(call, bytes)
        } else {
            Bytes::from(super::delete::listed(call, resource.read_stored(bytes)).to_string())
        };
        match object.strip_prefix(bare.as_bytes()).filter(|_| resource.kind_rules().is_some()) {
            Some(rest) => {
                text.push(b'{');
                text.extend_from_slice(rest);
            }
            None => text.extend_from_slice(&object),
        }
    }

    text.extend_from_slice(b"]}");
    Bytes::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continue_tokens_round_trip() {
        let token = Continue { version: 7, after: "a/b".to_owned() };
        assert_eq!(Continue::decode(&token.encode()).unwrap(), token);
        let rows = [
            ("abc", "invalid character 'i' looking for beginning of value"),
            ("eyJ2IjoidjEiLCJydiI6MSwic3RhcnQiOiIifQ", "server does not recognize this encoded version v1"),
        ];
        for (token, why) in rows {
            let bad = Continue::decode(token).unwrap_err().message;
            assert_eq!(bad, format!("invalid continue token: continue key is not valid: {why}"));
        }
    }
}
