//! Third-party Kubernetes clients for testing API servers.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use snafu::{ResultExt, Snafu, ensure};

/// Why a program could not be provided.
#[derive(Debug, Snafu)]
pub enum ToolsError {
    /// A build script could not be run.
    #[snafu(display("failed to run {}: {source}", script.display()))]
    RunScript {
        /// The script.
        script: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A build script failed.
    #[snafu(display("failed to build with {}: {message}; run dev/setup.sh integration", script.display()))]
    Build {
        /// The script.
        script: PathBuf,
        /// Its error output.
        message: String,
    },
}

/// The paths of the programs.
#[derive(Clone, Debug)]
pub struct Tools {
    /// kubectl.
    pub kubectl: PathBuf,
    /// helm.
    pub helm: PathBuf,
    /// Python with the official Kubernetes client.
    pub python: PathBuf,
    /// A client-go informer that prints its events.
    pub informer: PathBuf,
    /// The directory with the chart and the script for the programs.
    pub files: PathBuf,
}

impl Tools {
    /// Returns the programs, after building those that are missing.
    pub fn find() -> Result<Self, ToolsError> {
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev/clients");
        let clients = built_by(&files.join("build.sh"))?;
        let kube = built_by(&files.join("../kube/build.sh"))?;
        Ok(Self {
            kubectl: kube.join("kubectl"),
            helm: clients.join("venv/bin/helm"),
            python: clients.join("venv/bin/python"),
            informer: clients.join("informer"),
            files,
        })
    }
}

/// Runs a build script, which builds only what is not cached, and returns the directory that it prints.
pub(crate) fn built_by(script: &Path) -> Result<PathBuf, ToolsError> {
    let output = Command::new(script).output().context(RunScriptSnafu { script })?;
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success() && !output.stdout.is_empty(), BuildSnafu { script, message });
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}
