//! Checks that a cluster is ready for the operators.

mod crds;
mod leases;
mod permissions;
mod platform;
mod policies;
mod server;
mod tenants;

use clap::Args;
use serde::Serialize;
use snafu::ResultExt;

use super::{Ending, Error, FailChecksSnafu, WriteOutputSnafu, write_document};
use crate::{
    args::{ClusterArgs, OutputArgs},
    cluster::{Cluster, RequestError},
    printing::{Console, OutputFormat, Table},
};

/// The arguments of `vitistack doctor`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  # Check the current cluster
  vitistack doctor

  # List the checks that did not succeed
  vitistack doctor -o json | jq '.[] | select(.result != \"ok\")'

Exit status: 0 no check failed (warnings are allowed), 1 a check failed")]
pub struct DoctorArgs {
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As required.
    Ok,
    /// A feature is not available, or the check could not be made.
    Warning,
    /// The operators cannot work.
    Failed,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

/// A check and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was checked.
    pub check: String,
    /// The result.
    pub result: Outcome,
    /// What was found.
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

/// Runs all checks.
pub async fn run(arguments: &DoctorArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let cluster = Cluster::connect(&arguments.cluster).await?;
    // If this request fails, so do all others.
    let server = server::read(&cluster).await?;

    let mut findings = server.findings();
    findings.extend(crds::check(&cluster).await?);
    findings.extend(permissions::check(&cluster).await?);
    findings.extend(policies::check(&cluster, server.is_embedded()).await?);
    findings.extend(tenants::check_namespaces(&cluster).await?);
    if server.is_embedded() {
        // The embedded API has no nodes, so it does not need what machines on a cluster require.
        findings.push(Finding::ok("machines on this cluster", "none: the embedded API has providers only"));
    } else {
        findings.push(tenants::check_editors(&cluster).await?);
        findings.extend(platform::check(&cluster).await?);
    }
    findings.extend(leases::check(&cluster, server.now()).await?);

    print(&findings, arguments.output.output, console)?;
    let failed = findings.iter().filter(|finding| finding.result == Outcome::Failed).count();
    if failed > 0 {
        return FailChecksSnafu { failed, all: findings.len() }.fail();
    }
    Ok(Ending::Done)
}

/// Returns the finding of a check that could not be made. A cluster that cannot be reached at all is an error.
fn unknown(check: &str, failure: RequestError) -> Result<Finding, RequestError> {
    match failure {
        RequestError::Reach { .. } | RequestError::Authenticate { .. } => Err(failure),
        other => {
            let fix = "use a kubeconfig with the permission";
            Ok(Finding::warning(check, format!("not checked: {other}"), fix))
        }
    }
}

fn print(findings: &[Finding], format: OutputFormat, console: &mut Console<'_>) -> Result<(), Error> {
    if write_document(&findings, format, console)? {
        return Ok(());
    }

    let mut table = Table::new(["check", "result", "message"]);
    for finding in findings {
        let fix = finding.fix.as_ref().map(|fix| format!(": {fix}")).unwrap_or_default();
        table.row([&finding.check, finding.result.as_str(), &format!("{}{fix}", finding.message)]);
    }
    table.write(console.output, console.terminal).context(WriteOutputSnafu)
}
