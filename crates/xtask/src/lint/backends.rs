//! Code outside a backend does not name it: adding a backend must not mean edits all over the workspace.

use std::path::Path;

use snafu::Whatever;
use vitistack_types::v1alpha1::ProviderType;

use super::{
    files::{File, Problem, files, is_rust, report},
    rust::{Kind, Token, tokens, without_tests},
};

/// The name of the rule in exceptions.
const RULE: &str = "backend";

/// What may name a backend besides its own folder: its block of the CRD and the samples, the clients, the demo, and code
/// that only tests and measures.
const EXEMPT: [&str; 7] = [
    "crates/cli/src/commands/up/",
    "crates/clients/",
    "crates/machine/src/conformance/",
    "crates/testkit/",
    "crates/types/src/samples.rs",
    "crates/types/src/v1alpha1/machine_provider.rs",
    "crates/xtask/",
];

/// Checks the code and the strings below `crates/*/src`, without tests and comments.
pub fn run(root: &Path) -> Result<(), Whatever> {
    let files = files(root, &["crates"], is_checked)?;
    report(files.iter().flat_map(check).collect())
}

fn is_checked(path: &str) -> bool {
    let is_source = path.split('/').nth(2) == Some("src") && is_rust(path) && !path.ends_with("/tests.rs");
    let folder = path.strip_prefix("crates/machine/src/").and_then(|path| path.split('/').next());
    let is_backend = ProviderType::ALL.iter().any(|backend| folder == Some(backend.as_str()));
    is_source && !is_backend && !EXEMPT.iter().any(|exempt| path.starts_with(exempt))
}

fn check(file: &File) -> Vec<Problem> {
    let mut problems: Vec<Problem> = without_tests(&tokens(&file.text))
        .iter()
        .filter(|token| matches!(token.kind, Kind::Name | Kind::Text))
        .filter_map(|token| Some((token.line, named(token)?)))
        .filter(|(line, _)| !file.allows(RULE, *line))
        .map(|(line, backend)| Problem {
            path: file.path.clone(),
            line,
            message: format!(
                "names the backend {backend}: ask its descriptor, or write `// backend: allow, <reason>`"
            ),
        })
        .collect();
    problems.dedup();
    problems
}

/// The backend that a name or a text contains.
fn named(token: &Token) -> Option<&'static str> {
    let text = token.text.to_lowercase();
    ProviderType::ALL.into_iter().map(ProviderType::as_str).find(|backend| text.contains(backend))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(source: &str) -> Vec<usize> {
        let file = File { path: "crates/plan/src/a.rs".into(), text: source.into() };
        check(&file).into_iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn a_planted_name_is_found_in_code_and_strings() {
        assert_eq!(
            lines(
                "match kind {\n    ProviderType::Kubevirt => \"KubeVirt is slow\",\n}\nlet x = \"simulated\";"
            ),
            [2, 4]
        );
    }

    #[test]
    fn comments_tests_and_exceptions_may_name_a_backend() {
        assert!(lines("// KubeVirt takes silence for yes.\nfn f() {}\n").is_empty());
        assert!(lines("#[cfg(test)]\nmod tests {\n    const A: &str = \"kubevirt\";\n}\n").is_empty());
        assert!(lines("mod kubevirt; // backend: allow, the list of backends\n").is_empty());
    }

    #[test]
    fn a_backend_may_name_itself() {
        for path in ["crates/machine/src/kubevirt/plan.rs", "crates/controller/tests/it/a.rs", "docs/a.md"] {
            assert!(!is_checked(path), "{path}");
        }
        for path in ["crates/machine/src/lib.rs", "crates/plan/src/explain/mod.rs"] {
            assert!(is_checked(path), "{path}");
        }
    }
}
