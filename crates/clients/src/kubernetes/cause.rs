//! Why a cluster did not answer, without its own text.

use std::{error::Error, io};

use super::limits::{AnswerTooLarge, AnswerTooSlow};

/// Why a cluster did not answer. A cluster that is not under our control must not choose what users read, so its errors are
/// reported by cause, and their text stays in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing listens at the address.
    ConnectionRefused,
    /// The host name has no address.
    UnknownHost,
    /// There is no route to the address.
    NoRoute,
    /// The connection, or the answer, took too long.
    TimedOut,
    /// The certificates are not accepted, or it does not speak TLS.
    Tls,
    /// The answer is larger than allowed.
    TooLarge,
    /// The answer cannot be decoded.
    Undecodable,
    /// The connection ended, or anything else went wrong.
    ConnectionLost,
}

impl Cause {
    /// Returns the cause of a failed request that the server did not answer with a status.
    #[must_use]
    pub fn of(error: &kube::Error) -> Self {
        if matches!(error, kube::Error::SerdeError(_) | kube::Error::FromUtf8(_)) {
            return Self::Undecodable;
        }
        let mut next: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(current) = next {
            if let Some(cause) = of_one(current) {
                return cause;
            }
            next = wrapped(current).or_else(|| current.source());
        }
        Self::ConnectionLost
    }
}

/// Returns the error inside an `io::Error`, which its `source` skips.
fn wrapped<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let inner = error.downcast_ref::<io::Error>()?.get_ref()?;
    Some(inner)
}

/// Returns the cause that one error of a chain names.
fn of_one(error: &(dyn Error + 'static)) -> Option<Cause> {
    if error.is::<AnswerTooLarge>() {
        return Some(Cause::TooLarge);
    }
    if error.is::<AnswerTooSlow>() || error.is::<tower::timeout::error::Elapsed>() {
        return Some(Cause::TimedOut);
    }
    if error.is::<rustls::Error>() {
        return Some(Cause::Tls);
    }
    // The type of hyper's error is private.
    if error.to_string() == "dns error" {
        return Some(Cause::UnknownHost);
    }
    match error.downcast_ref::<io::Error>()?.kind() {
        io::ErrorKind::ConnectionRefused => Some(Cause::ConnectionRefused),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Some(Cause::NoRoute),
        io::ErrorKind::TimedOut => Some(Cause::TimedOut),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(error: impl Into<Box<dyn Error + Send + Sync>>) -> Cause {
        Cause::of(&kube::Error::Service(error.into()))
    }

    #[test]
    fn every_cause_is_found_below_the_layers_of_the_client() {
        let io = |kind| io::Error::from(kind);
        assert_eq!(of(io(io::ErrorKind::ConnectionRefused)), Cause::ConnectionRefused);
        assert_eq!(of(io(io::ErrorKind::HostUnreachable)), Cause::NoRoute);
        assert_eq!(of(io(io::ErrorKind::TimedOut)), Cause::TimedOut);
        assert_eq!(of(tower::timeout::error::Elapsed::new()), Cause::TimedOut);
        assert_eq!(of(AnswerTooSlow), Cause::TimedOut);
        assert_eq!(of(AnswerTooLarge), Cause::TooLarge);
        assert_eq!(of(io::Error::other(rustls::Error::DecryptError)), Cause::Tls);
        assert_eq!(of("dns error"), Cause::UnknownHost);
        assert_eq!(of("INTERNAL-PAGE-CANARY"), Cause::ConnectionLost);
        let outer = kube::Error::ReadEvents(io::Error::other(AnswerTooLarge));
        assert_eq!(Cause::of(&outer), Cause::TooLarge);
    }
}
