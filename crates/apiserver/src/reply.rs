//! Responses: content negotiation, and the response itself.

use axum::body::Body;
use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER},
};
use serde_json::Value;

use crate::status::Failure;

/// The representation of objects in a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// The object itself.
    #[default]
    Object,
    /// A table.
    Table,
    /// Metadata only.
    Partial,
}

/// The encoding of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Syntax {
    /// JSON.
    #[default]
    Json,
    /// YAML.
    Yaml,
}

/// The result of content negotiation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accept {
    /// The representation.
    pub form: Form,
    /// The encoding.
    pub syntax: Syntax,
    /// Whether the client accepts aggregated discovery.
    pub aggregated: bool,
}

impl Accept {
    /// Selects the first accepted media type that is served.
    pub fn parse(header: Option<&str>) -> Result<Self, Failure> {
        let header = header.map(str::trim).filter(|header| !header.is_empty());
        let Some(header) = header else { return Ok(Self::default()) };
        header.split(',').find_map(Self::one).ok_or_else(Failure::not_acceptable)
    }

    /// The router in front of the built-in kinds supports no wildcard except `*/*`.
    pub fn check_built_in(header: Option<&str>, listing: bool) -> Result<(), Failure> {
        let Some(header) = header.map(str::trim).filter(|header| !header.is_empty()) else { return Ok(()) };
        let known = |range: &str| {
            let media = range.split(';').next().unwrap_or_default().trim();
            matches!(
                media,
                "*/*" | "application/json" | "application/yaml" | "application/vnd.kubernetes.protobuf"
            )
        };
        if header.split(',').any(known) { Ok(()) } else { Err(Failure::no_representation(listing)) }
    }

    fn one(range: &str) -> Option<Self> {
        let mut parts = range.split(';').map(str::trim);
        let syntax = match parts.next()? {
            "application/json" | "application/*" | "*/*" => Syntax::Json,
            "application/yaml" => Syntax::Yaml,
            _ => return None,
        };

        let (mut group, mut kind) = ("", "");
        for parameter in parts {
            match parameter.split_once('=') {
                Some(("g", value)) => group = value,
                Some(("as", value)) => kind = value,
                _ => {}
            }
        }

        let plain = Self { syntax, ..Self::default() };
        match (group, kind) {
            (_, "") => Some(plain),
            ("meta.k8s.io", "Table") => Some(Self { form: Form::Table, ..plain }),
            ("meta.k8s.io", "PartialObjectMetadata" | "PartialObjectMetadataList") => {
                Some(Self { form: Form::Partial, ..plain })
            }
            ("apidiscovery.k8s.io", "APIGroupDiscoveryList") => Some(Self { aggregated: true, ..plain }),
            _ => None,
        }
    }
}

/// The payload of a response.
#[derive(Debug)]
pub enum Payload {
    /// Stored JSON.
    Bytes(Bytes),
    /// A value.
    Value(Value),
    /// A watch.
    Stream(Body),
    /// Plain text.
    Text(&'static str),
}

/// A response.
#[derive(Debug)]
pub struct Reply {
    /// The HTTP status.
    pub code: StatusCode,
    /// The payload.
    pub payload: Payload,
    /// The texts of `Warning` headers.
    pub warnings: Vec<String>,
    /// The content type, if it is not `application/json`.
    pub content_type: Option<&'static str>,
}

/// The maximum number of `Warning` headers: clients reject responses with very many headers.
const MAX_WARNINGS: usize = 100;

impl Reply {
    /// Returns 200 with a value.
    #[must_use]
    pub fn value(value: Value) -> Self {
        Self::new(StatusCode::OK, Payload::Value(value))
    }

    /// Returns 200 with stored JSON.
    #[must_use]
    pub fn bytes(bytes: Bytes) -> Self {
        Self::new(StatusCode::OK, Payload::Bytes(bytes))
    }

    /// Returns a response with a status and a value.
    #[must_use]
    pub fn new(code: StatusCode, payload: Payload) -> Self {
        Self { code, payload, warnings: Vec::new(), content_type: None }
    }

    /// Returns the 404 response for a path that Kubernetes does not serve.
    #[must_use]
    pub fn page_not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, Payload::Text("404 page not found\n"))
    }

    /// Converts the reply to an HTTP response.
    #[must_use]
    pub fn into_response(self, syntax: Syntax) -> Response<Body> {
        let (body, content_type) = match (self.payload, syntax) {
            (Payload::Stream(body), _) => (body, "application/json"),
            (Payload::Text(text), _) => (Body::from(text), "text/plain; charset=utf-8"),
            (Payload::Bytes(bytes), Syntax::Json) => (Body::from(bytes), "application/json"),
            (Payload::Value(value), Syntax::Json) => (Body::from(value.to_string()), "application/json"),
            (Payload::Bytes(bytes), Syntax::Yaml) => {
                (yaml(&crate::store::document::parse(&bytes)), "application/yaml")
            }
            (Payload::Value(value), Syntax::Yaml) => (yaml(&value), "application/yaml"),
        };

        let mut response = Response::new(body);
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type.unwrap_or(content_type)));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));

        for warning in self.warnings.into_iter().take(MAX_WARNINGS) {
            let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
                headers.append("warning", value);
            }
        }
        response
    }
}

fn yaml(value: &Value) -> Body {
    Body::from(serde_saphyr::to_string(value).unwrap_or_default())
}

/// Returns the HTTP response of a failed request.
#[must_use]
pub fn failure(failure: &Failure) -> Response<Body> {
    let status = failure.to_value();
    let retry = status.pointer("/details/retryAfterSeconds").and_then(Value::as_u64);
    let mut reply = Reply::new(failure.code, Payload::Value(status));
    reply.warnings = failure.warnings.to_vec();
    let mut response = reply.into_response(Syntax::Json);
    if let Some(seconds) = retry {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_supported_type_is_selected() {
        let rows = [
            (None, Some((Form::Object, false))),
            (Some("application/json"), Some((Form::Object, false))),
            (Some("application/vnd.kubernetes.protobuf,application/json"), Some((Form::Object, false))),
            (
                Some("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"),
                Some((Form::Table, false)),
            ),
            (
                Some("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
                Some((Form::Partial, false)),
            ),
            (
                Some("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
                Some((Form::Object, true)),
            ),
            (Some("*/*"), Some((Form::Object, false))),
            (Some("application/vnd.kubernetes.protobuf"), None),
            (Some("text/html"), None),
        ];
        for (header, expected) in rows {
            let accept = Accept::parse(header).ok().map(|accept| (accept.form, accept.aggregated));
            assert_eq!(accept, expected, "{header:?}");
        }
    }
}
