//! Prints the versions of the client and the server.

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use snafu::ResultExt;

use super::{Ending, Error, WriteOutputSnafu, write_document};
use crate::{
    args::{ClusterArgs, OutputArgs},
    cluster::Cluster,
    printing::{Console, write_line},
};

/// Returns the commit of this build, if the build sets it. Published sources have no repository to read it from.
fn commit() -> Option<&'static str> {
    option_env!("VITISTACK_COMMIT").filter(|commit| !commit.is_empty())
}

/// The arguments of `vitistack version`.
#[derive(Args, Debug)]
#[command(
    after_help = "If the server cannot be reached, the version of the client is printed and the exit status is 1.

Examples:
  # Print the versions of the client and the server
  vitistack version

  # Print the version of the client only
  vitistack version --client -o json

Exit status: 0 success, 1 failure"
)]
pub struct VersionArgs {
    /// Print the version of the client only, without a cluster
    #[arg(long)]
    client: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The versions, in the form of `kubectl version -o json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Versions {
    client_version: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_version: Option<Value>,
}

/// Prints the versions. That of the client is printed even if the server cannot be reached, as in kubectl.
pub async fn run(arguments: &VersionArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let server = if arguments.client { Ok(None) } else { read(&arguments.cluster).await.map(Some) };
    let (server_version, failure) = match server {
        Ok(version) => (version, None),
        Err(error) => (None, Some(error)),
    };

    let versions = Versions { client_version: client(), server_version };
    if !write_document(&versions, arguments.output.output, console)? {
        write(&versions, console).context(WriteOutputSnafu)?;
    }
    failure.map_or(Ok(Ending::Done), Err)
}

/// Returns the version of this build.
fn client() -> Value {
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    match commit() {
        Some(commit) => json!({ "gitVersion": version, "gitCommit": commit }),
        None => json!({ "gitVersion": version }),
    }
}

/// Returns what the server reports about its version.
async fn read(arguments: &ClusterArgs) -> Result<Value, Error> {
    let cluster = Cluster::connect(arguments).await?;
    let request = http::Request::get("/version").body(Vec::new());
    let answer = match request {
        Ok(request) => cluster.client.request(request).await,
        Err(error) => Err(kube::Error::HttpError(error)),
    };
    answer.map_err(|error| cluster.failure("read the version", error).into())
}

fn write(versions: &Versions, console: &mut Console<'_>) -> std::io::Result<()> {
    let version = |version: &Value| version.get("gitVersion").and_then(Value::as_str).map(ToOwned::to_owned);
    let unknown = || "unknown".to_owned();
    let client = version(&versions.client_version).unwrap_or_else(unknown);
    write_line(console.output, format_args!("Client Version: {client}"))?;
    if let Some(commit) = commit() {
        write_line(console.output, format_args!("Client Commit: {commit}"))?;
    }
    if let Some(server) = &versions.server_version {
        let server = version(server).unwrap_or_else(unknown);
        write_line(console.output, format_args!("Server Version: {server}"))?;
    }
    console.output.flush()
}
