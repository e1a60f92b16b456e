//! Looks at a cluster for everything that the operators need.

mod definitions;
mod leases;
mod permissions;
mod platform;
mod policies;
mod server;

use clap::Args;
use serde::Serialize;
use snafu::ResultExt;

use super::{Ending, Error, FailChecksSnafu, WriteObjectSnafu, WriteOutputSnafu, write_json};
use crate::{
    args::OutputArgs,
    cluster::{Cluster, ClusterArgs, RequestError},
    output::{Console, OutputFormat, Table},
};

/// Which cluster, and in which form to tell.
#[derive(Args, Debug)]
#[command(
    after_help = "Exits with 1 if a check failed; a warning is no failure.\n\nExamples:\n  vitistack doctor\n  vitistack doctor -o json | jq '.[] | select(.result != \"ok\")'"
)]
pub struct DoctorArgs {
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As it should be.
    Ok,
    /// Something will not work, or could not be looked at.
    Warning,
    /// The operators cannot work.
    Failed,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: String,
    /// How it is.
    pub result: Outcome,
    /// What was seen.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    fn ok(check: &str, message: impl Into<String>) -> Self {
        Self { check: check.to_owned(), result: Outcome::Ok, message: message.into(), fix: None }
    }

    fn warning(check: &str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        let (message, fix) = (message.into(), Some(fix.into()));
        Self { check: check.to_owned(), result: Outcome::Warning, message, fix }
    }

    fn failed(check: &str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { result: Outcome::Failed, ..Self::warning(check, message, fix) }
    }
}

/// Looks at everything.
pub async fn run(arguments: &DoctorArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let cluster = Cluster::connect(&arguments.cluster).await?;
    // Whoever does not get this answer gets no other.
    let server = server::look(&cluster).await?;
    let mut findings = server.findings();
    findings.extend(definitions::look(&cluster).await?);
    findings.extend(permissions::look(&cluster).await?);
    findings.extend(policies::look(&cluster, server.is_embedded()).await?);
    if server.is_embedded() {
        // Nothing runs on it, so it needs nothing to run machines with.
        findings.push(Finding::ok("machines on this cluster", "none: the embedded API has providers only"));
    } else {
        findings.extend(platform::look(&cluster).await?);
    }
    findings.extend(leases::look(&cluster, server.now()).await?);
    print(&findings, arguments.output.output, console)?;
    let failed = findings.iter().filter(|finding| finding.result == Outcome::Failed).count();
    if failed > 0 {
        return FailChecksSnafu { failed, all: findings.len() }.fail();
    }
    Ok(Ending::Done)
}

/// A check that could not be made. A cluster that does not answer at all is no finding.
fn unknown(check: &str, failure: RequestError) -> Result<Finding, RequestError> {
    match failure {
        RequestError::Reach { .. } | RequestError::LogIn { .. } => Err(failure),
        other => {
            Ok(Finding::warning(check, format!("not looked at: {other}"), "use a kubeconfig that may look"))
        }
    }
}

fn print(findings: &[Finding], format: OutputFormat, console: &mut Console<'_>) -> Result<(), Error> {
    match format {
        OutputFormat::Table | OutputFormat::Wide => {
            let mut table = Table::new(["check", "result", "message"]);
            for finding in findings {
                let fix = finding.fix.as_ref().map(|fix| format!(": {fix}")).unwrap_or_default();
                table.row([&finding.check, finding.result.word(), &format!("{}{fix}", finding.message)]);
            }
            table.write(console.output, console.terminal).context(WriteOutputSnafu)
        }
        OutputFormat::Json => write_json(&findings, console),
        OutputFormat::Yaml => {
            let yaml = serde_saphyr::to_string(&findings).context(WriteObjectSnafu)?;
            console.output.write_all(yaml.as_bytes()).context(WriteOutputSnafu)
        }
        OutputFormat::Name => findings
            .iter()
            .try_for_each(|finding| writeln!(console.output, "{}", finding.check))
            .context(WriteOutputSnafu),
    }
}
