//! What may be shown of the text that a provider's cluster returns.
//!
//! The cluster is not under our control, so its text is not repeated in status, events and errors: it may be the page of
//! another server, contain a secret, or be written to mislead. It is logged at debug level instead. There are two exceptions:
//! names of objects, if they have the form of a name, and what a validator says about the object that a user's Machine
//! became, because nothing else tells the user what to change: its first line, bounded, and only if it contains nothing that
//! may be a secret.

use kube::core::Status;
use serde_json::Value;

use super::kind::Kind;

/// The maximum length of a validator's line.
const LINE_LIMIT: usize = 200;
/// The maximum length of a text in the log.
const LOG_LIMIT: usize = 1000;
/// The maximum length of a name in Kubernetes.
const NAME_LIMIT: usize = 253;
/// A word of this length in one line is a key or a token rather than a word.
const WORD_LIMIT: usize = 40;

/// The reason that the client gives an answer that is not a Status, such as the page of another server.
const NOT_A_STATUS: &str = "Failed to parse error data";

/// Words that stand beside secrets.
const SECRET_WORDS: [&str; 11] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "bearer",
    "authorization",
    "credential",
    "apikey",
    "api_key",
    "-----begin",
];

/// Returns a name from the cluster, or a placeholder if it cannot be one.
#[must_use]
pub fn name(text: &str) -> &str {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let is_name = (1..=NAME_LIMIT).contains(&text.len()) && text.bytes().all(is_letter);
    if is_name { text } else { "unknown" }
}

/// Returns a mode, or a list of modes, from the cluster as JSON, or a placeholder if it cannot be one.
#[must_use]
pub fn mode(value: &Value) -> String {
    let text = value.to_string();
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'[' | b']' | b'"' | b',');
    let is_mode = text.len() <= LINE_LIMIT && text.bytes().all(is_letter);
    if is_mode { text } else { "unknown".to_owned() }
}

/// Returns what a validator says about an object that was written; nothing for all other answers.
#[must_use]
pub fn validator_line(kind: Kind, verb: &str, status: &Status) -> Option<String> {
    let is_write = ["apply", "change", "create"].contains(&verb);
    let is_judged = matches!(status.code, 400 | 403 | 422) && status.reason != NOT_A_STATUS;
    // The answer about a Secret could quote it.
    if !is_write || !is_judged || kind == Kind::Secret {
        return None;
    }

    let message = status.message.trim();
    let message = message
        .split_once("denied the request: ")
        .filter(|(start, _)| start.starts_with("admission webhook"))
        .map_or(message, |(_, reason)| reason.trim());
    let line = message.lines().next().unwrap_or_default();
    let line = printable(line, LINE_LIMIT);
    (!line.is_empty() && !may_contain_secret(&line)).then_some(line)
}

/// Writes a text of the cluster to the log.
pub fn log(about: &str, text: &str) {
    tracing::debug!(about, text = printable(text, LOG_LIMIT), "text of the provider's cluster");
}

/// Returns a text as one bounded line without control characters and with single spaces.
fn printable(text: &str, limit: usize) -> String {
    // Only the beginning is read, so that a long text costs nothing.
    let beginning: String = text.chars().take(4 * limit).collect();
    let words: Vec<&str> = beginning.split_whitespace().collect();
    let line: String = words.join(" ").chars().filter(|letter| !is_hidden(*letter)).collect();
    let mut cut: String = line.chars().take(limit).collect();
    if cut.len() < line.len() {
        cut.push('…');
    }
    cut
}

/// Whether a character is not shown, or changes the direction of the text around it.
fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Whether a line may contain a secret: next to a word for one, in an address, or as a long word of letters and digits.
fn may_contain_secret(line: &str) -> bool {
    let lower = line.to_lowercase();
    let is_named = SECRET_WORDS.iter().any(|word| lower.contains(word));
    let has_login = line.split_whitespace().any(|word| word.contains("://") && word.contains(['@', '?']));
    let is_key_letter =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '/' | '=' | '_');
    let mut runs = line.split(|letter: char| !is_key_letter(letter));
    let has_key = runs.any(|run| run.len() >= WORD_LIMIT && run.bytes().any(|byte| byte.is_ascii_digit()));
    is_named || has_login || has_key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, message: &str) -> Status {
        Status { code, message: message.to_owned(), reason: "Invalid".to_owned(), ..Status::default() }
    }

    fn line(message: &str) -> Option<String> {
        validator_line(Kind::VirtualMachine, "apply", &status(422, message))
    }

    #[test]
    fn a_validators_first_line_about_a_written_object_is_shown() {
        let message = "admission webhook \"virtualmachine-validator.kubevirt.io\" denied the request: spec.template.spec.domain.machine.type is not supported: pc\n second line";
        let shown = "spec.template.spec.domain.machine.type is not supported: pc";
        assert_eq!(line(message).as_deref(), Some(shown));
        assert_eq!(line(&"é ".repeat(1000)).unwrap().chars().count(), LINE_LIMIT + 1);
        assert_eq!(line("a\u{7}\u{202e}b\t c").as_deref(), Some("ab c"));
    }

    #[test]
    fn answers_to_reads_and_pages_of_other_servers_are_not_shown() {
        let denied = status(422, "spec is wrong");
        for verb in ["read", "delete"] {
            assert_eq!(validator_line(Kind::VirtualMachine, verb, &denied), None);
        }
        assert_eq!(validator_line(Kind::Secret, "create", &denied), None);
        assert_eq!(validator_line(Kind::VirtualMachine, "apply", &status(500, "spec is wrong")), None);
        let page = Status { reason: NOT_A_STATUS.to_owned(), ..status(403, "<html>") };
        assert_eq!(validator_line(Kind::VirtualMachine, "apply", &page), None);
    }

    #[test]
    fn a_line_that_may_contain_a_secret_is_not_shown() {
        for text in [
            "INTERNAL-PAGE-CANARY password=hunter2",
            "Authorization: Basic aHVudGVyMg==",
            "cannot fetch https://user:hunter2@example.com/x",
            "cannot fetch https://example.com/x?sig=hunter2",
            "value eyJhbGciOiJSUzI1NiIsImtpZCI6IjEyMyJ9eyJpc3MiOiJrdWJlcm5ldGVz is wrong",
            "-----BEGIN CERTIFICATE-----",
        ] {
            assert_eq!(line(text), None, "{text}");
        }
        assert!(line("exceeded quota: small, requested: requests.storage=20Gi, used: 0").is_some());
    }

    #[test]
    fn only_what_can_be_a_name_is_shown_as_one() {
        assert_eq!(name("node-1.example"), "node-1.example");
        for text in ["", "a b", "<script>", "a\nb", &"a".repeat(300)] {
            assert_eq!(name(text), "unknown");
        }
    }
}
