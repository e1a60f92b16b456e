//! The API server: its version, and what time it has.

use http::{Request, header::DATE};
use http_body_util::BodyExt as _;
use k8s_openapi::jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use kube::client::Body;
use serde_json::Value;

use super::Finding;
use crate::cluster::{Cluster, RequestError};

/// The first version whose CEL rules our definitions are written for.
const OLDEST: (u32, u32) = (1, 29);
/// The header has whole seconds, and an answer takes some time.
const CLOSE: SignedDuration = SignedDuration::from_secs(3);
/// A certificate or a token that is just made would not be valid yet.
const FAR: SignedDuration = SignedDuration::from_secs(60);

/// What the embedded API has in its version.
const EMBEDDED: &str = "+vitistack-";

/// What the server said of itself.
pub struct Server {
    version: String,
    number: Option<(u32, u32)>,
    /// How far its clock is ahead of ours; none if it does not say.
    ahead: Option<SignedDuration>,
}

/// Asks it.
pub async fn look(cluster: &Cluster) -> Result<Server, RequestError> {
    let failure = |error| cluster.failure("ask for the version", error);
    let request = Request::get("/version").body(Body::empty());
    let request = request.map_err(|error| failure(kube::Error::HttpError(error)))?;
    let asked = Timestamp::now();
    let answer = cluster.client.send(request).await.map_err(failure)?;
    let heard = Timestamp::now();
    let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok()).and_then(time);
    let middle = asked + heard.duration_since(asked) / 2;
    let body = answer.into_body().collect().await.map_err(failure)?.to_bytes();
    let version: Value =
        serde_json::from_slice(&body).map_err(|error| failure(kube::Error::SerdeError(error)))?;
    let text = |field: &str| version.get(field).and_then(Value::as_str).unwrap_or_default();
    // Clouds write `1` and `31+`.
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
    /// The time as the server has it, as far as it says.
    pub fn now(&self) -> Timestamp {
        Timestamp::now() + self.ahead.unwrap_or_default()
    }

    /// Whether it is the API of `vitistack up`, which has no nodes.
    pub fn is_embedded(&self) -> bool {
        self.version.contains(EMBEDDED)
    }

    /// What is to be said.
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
                format!("{:?} is no version of Kubernetes", self.version),
                format!("make sure that it serves what {major}.{minor} serves"),
            ),
        }
    }

    fn clock(&self) -> Finding {
        let fix = "set both by NTP";
        let Some(ahead) = self.ahead else {
            return Finding::warning("clock", "the server does not say what time it has", fix);
        };
        let off = ahead.abs();
        let seconds = off.as_secs();
        let direction = if ahead.is_positive() { "ahead of" } else { "behind" };
        let message = format!("the server's clock is {seconds} s {direction} the one here");
        if off <= CLOSE {
            Finding::ok("clock", "the server has the same time as here")
        } else if off <= FAR {
            Finding::warning("clock", message, fix)
        } else {
            Finding::failed("clock", message, fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(number: Option<(u32, u32)>, ahead: Option<i64>) -> String {
        let ahead = ahead.map(SignedDuration::from_secs);
        let server = Server { version: "v".to_owned(), number, ahead };
        let line =
            |finding: Finding| format!("{} {}: {}", finding.check, finding.result.word(), finding.message);
        server.findings().into_iter().map(line).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn an_old_server_and_a_wrong_clock_are_told() {
        let told = [
            told(Some((1, 36)), Some(1)),
            told(Some((1, 28)), Some(-30)),
            told(None, Some(3600)),
            told(Some((2, 0)), None),
        ];
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn the_time_of_a_header_is_read() {
        assert_eq!(time("Thu, 01 Jan 1970 00:01:00 GMT"), Some(Timestamp::from_second(60).unwrap()));
        assert_eq!(time("yesterday"), None);
    }
}
