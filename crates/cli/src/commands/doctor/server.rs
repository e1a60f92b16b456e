//! Checks the version and the clock of the API server.

use http::{Request, header::DATE};
use http_body_util::BodyExt as _;
use k8s_openapi::jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use kube::client::Body;
use serde_json::Value;

use super::Finding;
use crate::cluster::{Cluster, RequestError};

/// The oldest version that supports the CEL rules of the CRDs.
const OLDEST: (u32, u32) = (1, 29);
/// The header has whole seconds, and the response takes some time.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(3);
/// Beyond this, new certificates and tokens may not be valid yet.
const LIMIT: SignedDuration = SignedDuration::from_secs(60);

/// The mark of the embedded API in its version.
const EMBEDDED: &str = "+vitistack-";

/// The version and the clock of a server.
pub struct Server {
    version: String,
    number: Option<(u32, u32)>,
    /// How far the clock of the server is ahead of the local one; `None` if it is not reported.
    ahead: Option<SignedDuration>,
}

/// Reads the version and the clock.
pub async fn read(cluster: &Cluster) -> Result<Server, RequestError> {
    let failure = |error| cluster.failure("read the version", error);
    let request = Request::get("/version").body(Body::empty());
    let request = request.map_err(|error| failure(kube::Error::HttpError(error)))?;

    let sent = Timestamp::now();
    let answer = cluster.client.send(request).await.map_err(failure)?;
    let received = Timestamp::now();
    let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok()).and_then(time);
    let middle = sent + received.duration_since(sent) / 2;

    let body = answer.into_body().collect().await.map_err(failure)?.to_bytes();
    let version: Value =
        serde_json::from_slice(&body).map_err(|error| failure(kube::Error::SerdeError(error)))?;
    let text = |field: &str| version.get(field).and_then(Value::as_str).unwrap_or_default();
    // Managed clusters report versions such as `31+`.
    let number = |field: &str| text(field).trim_end_matches('+').parse().ok();
    Ok(Server {
        version: text("gitVersion").to_owned(),
        number: number("major").zip(number("minor")),
        ahead: date.map(|date| date.duration_since(middle)),
    })
}

fn time(date: &str) -> Option<Timestamp> {
    Some(rfc2822::DateTimeParser::new().parse_zoned(date).ok()?.timestamp())
}

impl Server {
    /// Returns the time of the server, or the local time if it is not reported.
    pub fn now(&self) -> Timestamp {
        Timestamp::now() + self.ahead.unwrap_or_default()
    }

    /// Returns whether this is the embedded API of `vitistack up`, which has no nodes.
    pub fn is_embedded(&self) -> bool {
        self.version.contains(EMBEDDED)
    }

    /// Returns the findings.
    pub fn findings(&self) -> Vec<Finding> {
        vec![self.version(), self.clock()]
    }

    fn version(&self) -> Finding {
        let (major, minor) = OLDEST;
        match self.number {
            Some(number) if number < OLDEST => Finding::failed(
                "api-server",
                format!("{} is older than {major}.{minor}", self.version),
                "upgrade the cluster",
            ),
            Some(_) => Finding::ok("api-server", self.version.clone()),
            None => Finding::warning(
                "api-server",
                format!("unknown version {:?}", self.version),
                format!("make sure that it is compatible with Kubernetes {major}.{minor}"),
            ),
        }
    }

    fn clock(&self) -> Finding {
        let fix = "synchronize both clocks with NTP";
        let Some(ahead) = self.ahead else {
            return Finding::warning("clock", "the server does not report its time", fix);
        };
        let off = ahead.abs();
        let seconds = off.as_secs();
        let direction = if ahead.is_positive() { "ahead of" } else { "behind" };
        let message = format!("the clock of the server is {seconds} s {direction} the local clock");
        if off <= TOLERANCE {
            Finding::ok("clock", "in sync with the server")
        } else if off <= LIMIT {
            Finding::warning("clock", message, fix)
        } else {
            Finding::failed("clock", message, fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(number: Option<(u32, u32)>, ahead: Option<i64>) -> String {
        let ahead = ahead.map(SignedDuration::from_secs);
        let server = Server { version: "v".to_owned(), number, ahead };
        let line =
            |finding: Finding| format!("{} {}: {}", finding.check, finding.result.as_str(), finding.message);
        server.findings().into_iter().map(line).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn an_old_server_and_a_wrong_clock_are_reported() {
        let lines = [
            findings(Some((1, 36)), Some(1)),
            findings(Some((1, 28)), Some(-30)),
            findings(None, Some(3600)),
            findings(Some((2, 0)), None),
        ];
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn the_date_header_is_parsed() {
        assert_eq!(time("Thu, 01 Jan 1970 00:01:00 GMT"), Some(Timestamp::from_second(60).unwrap()));
        assert_eq!(time("yesterday"), None);
    }
}
