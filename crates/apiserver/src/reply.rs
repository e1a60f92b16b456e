//! Answers: which form the client takes, and the response that carries it.

use axum::body::Body;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde_json::Value;

use crate::status::Failure;

/// The form of an answer about objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// As it is.
    #[default]
    Object,
    /// A table.
    Table,
    /// Metadata only.
    Partial,
}

/// How the answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Syntax {
    /// JSON.
    #[default]
    Json,
    /// YAML.
    Yaml,
}

/// What the client takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accept {
    /// The form.
    pub form: Form,
    /// The syntax.
    pub syntax: Syntax,
    /// Whether it takes aggregated discovery.
    pub aggregated: bool,
}

impl Accept {
    /// Chooses the first of the accepted types that is served.
    pub fn parse(header: Option<&str>) -> Result<Self, Failure> {
        let header = header.map(str::trim).filter(|header| !header.is_empty());
        let Some(header) = header else { return Ok(Self::default()) };
        header.split(',').find_map(Self::one).ok_or_else(Failure::not_acceptable)
    }

    /// The router before the built-in kinds knows no wildcard but the one for everything.
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

/// What is answered.
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

/// An answer.
#[derive(Debug)]
pub struct Reply {
    /// The HTTP status.
    pub code: StatusCode,
    /// What is answered.
    pub payload: Payload,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
    /// Set where the content type is more than `application/json`.
    pub content_type: Option<&'static str>,
}

impl Reply {
    /// 200 with a value.
    #[must_use]
    pub fn value(value: Value) -> Self {
        Self::new(StatusCode::OK, Payload::Value(value))
    }

    /// 200 with stored JSON.
    #[must_use]
    pub fn bytes(bytes: Bytes) -> Self {
        Self::new(StatusCode::OK, Payload::Bytes(bytes))
    }

    /// An answer.
    #[must_use]
    pub fn new(code: StatusCode, payload: Payload) -> Self {
        Self { code, payload, warnings: Vec::new(), content_type: None }
    }

    /// 404 of a path Kubernetes does not know.
    #[must_use]
    pub fn page_not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, Payload::Text("404 page not found\n"))
    }

    /// The response.
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
        for warning in self.warnings {
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

/// The response to a request that failed.
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
    fn the_first_type_that_is_served_is_taken() {
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
