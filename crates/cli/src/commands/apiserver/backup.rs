//! Writes a backup of a data directory.

use std::{
    io::{self, BufWriter, ErrorKind},
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clap::Args;
use http::Request;
use http_body_util::BodyExt as _;
use k8s_openapi::jiff::Timestamp;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use snafu::{OptionExt, ResultExt, Snafu, ensure};
use tempfile::NamedTempFile;
use vitistack_apiserver::{
    backup::{self, Archive, ArchiveError, Identity, Objects, Reader},
    store::Snapshot,
};
use vitistack_runtime::shutdown::{self, ShutdownError};

use super::read_secret;
use crate::{
    age::{AgeError, Encryptor, Lock, Passphrase, Recipient},
    commands::Ending,
    printing::Console,
};

/// The arguments of `vitistack apiserver backup`.
#[derive(Args, Debug)]
#[command(after_help = "The file is in the format of age (https://age-encryption.org); age can open it too.

Examples:
  # Back up the data of vitistack up in this directory
  vitistack apiserver backup --data-dir .vitistack --out backup.age --passphrase-file passphrase

  # Encrypt to a public key, so that this computer cannot open the backup
  vitistack apiserver backup --data-dir ./data --out backup.age --recipient \"$(cat key.pub)\"

  # Look into a backup
  age -d -i key.txt backup.age | head -1")]
pub struct BackupArgs {
    /// Data directory of "vitistack up" or "vitistack apiserver", running or stopped
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: PathBuf,

    /// File to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Replace the file if it exists
    #[arg(long)]
    overwrite: bool,

    #[command(flatten)]
    lock: LockArgs,

    /// Kubeconfig of the running server, if it is not in the data directory
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// Who can open the file.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct LockArgs {
    /// File with the passphrase in its first line
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,

    /// Public key (age1…) that the backup is encrypted to; may be repeated
    #[arg(long, value_name = "KEY", value_parser = Recipient::parse)]
    recipient: Vec<Recipient>,
}

/// Errors of `vitistack apiserver backup`.
#[derive(Debug, Snafu)]
pub enum BackupError {
    /// Signals cannot be handled.
    #[snafu(display("{source}"), context(false))]
    HandleSignals { source: ShutdownError },
    /// The user stopped the backup.
    #[snafu(display("interrupted: no backup was written"))]
    Interrupt,
    /// The file exists.
    #[snafu(display("\"{}\" exists: choose another file, or pass --overwrite to replace it", path.display()))]
    FindFile { path: PathBuf },
    /// The passphrase cannot be read.
    #[snafu(display("failed to read --passphrase-file \"{}\": {source}", path.display()))]
    ReadPassphrase { path: PathBuf, source: io::Error },
    /// The passphrase is not valid.
    #[snafu(display("--passphrase-file \"{}\": {source}", path.display()))]
    ParsePassphrase { path: PathBuf, source: AgeError },
    /// The data directory cannot be read.
    #[snafu(display("{source}"), context(false))]
    ReadDirectory { source: backup::BackupError },
    /// The address of the server is unknown.
    #[snafu(display("failed to find the address of the server in \"{}\": wait until the server has started, or set --kubeconfig to the kubeconfig that it has written", path.display()))]
    FindAddress { path: PathBuf },
    /// The server has another identity.
    #[snafu(display("failed to find the credentials of the running server in \"{}\": set --data-dir to its data directory", path.display()))]
    FindIdentity { path: PathBuf },
    /// The server did not send its objects.
    #[snafu(display("failed to read the objects of the running server at {address}: {source}; check that it is the server of \"{}\"", path.display()))]
    Request {
        address: SocketAddr,
        path: PathBuf,
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    /// The server refused.
    #[snafu(display(
        "failed to read the objects of the running server at {address}: it answered {status}; restart it with this version of vitistack"
    ))]
    Refuse { address: SocketAddr, status: http::StatusCode },
    /// The server ended while it sent its objects.
    #[snafu(display("failed to read the objects of the running server: {source}"))]
    Receive { source: ArchiveError },
    /// The file cannot be written.
    #[snafu(display("failed to write \"{}\": {source}", path.display()))]
    WriteFile { path: PathBuf, source: io::Error },
    /// The content cannot be encrypted or written.
    #[snafu(display("failed to write \"{}\": {source}", path.display()))]
    Encrypt { path: PathBuf, source: AgeError },
    /// The output is closed or full.
    #[snafu(display("failed to write the output: {source}"))]
    WriteOutput { source: io::Error },
}

/// Writes the backup, or nothing.
pub async fn run(arguments: &BackupArgs, console: &mut Console<'_>) -> Result<Ending, BackupError> {
    let end = shutdown::on_signal()?;
    let (version, objects) = tokio::select! {
        written = write(arguments) => written?,
        () = end.cancelled() => return InterruptSnafu.fail(),
    };
    writeln!(
        console.output,
        "backup \"{}\" written: {objects} objects at version {version}",
        arguments.out.display()
    )
    .context(WriteOutputSnafu)?;
    Ok(Ending::Done)
}

/// Writes the backup to a temporary file, which is removed if anything fails, and gives it its name when it is complete.
async fn write(arguments: &BackupArgs) -> Result<(u64, u64), BackupError> {
    let BackupArgs { data_dir, out, overwrite, lock, kubeconfig } = arguments;
    ensure!(*overwrite || !out.exists(), FindFileSnafu { path: out });
    let lock = lock.read()?;
    let objects = backup::objects(data_dir).await?;
    let identity = Identity::read(data_dir)?;

    let file = create(out).context(WriteFileSnafu { path: out })?;
    let encryptor = Encryptor::new(&lock, BufWriter::new(file)).context(EncryptSnafu { path: out })?;
    let mut copy = Transfer { encryptor, reader: Reader::default(), path: out };
    match objects {
        Objects::Stopped(snapshot) => copy_snapshot(snapshot, &mut copy).await?,
        Objects::Running => {
            let kubeconfig = kubeconfig.clone().unwrap_or_else(|| data_dir.join("kubeconfig"));
            let identity = identity.as_ref().context(FindIdentitySnafu { path: data_dir })?;
            copy_running(identity, &kubeconfig, data_dir, &mut copy).await?;
        }
    }

    let counts = copy.reader.counts().context(ReceiveSnafu)?;
    let encryptor = copy.end(identity.as_ref())?;
    let file = encryptor.finish().context(EncryptSnafu { path: out })?;
    publish(file, out, *overwrite)?;
    Ok(counts)
}

impl LockArgs {
    /// Returns who can open the file.
    fn read(&self) -> Result<Lock, BackupError> {
        match &self.passphrase_file {
            None => Ok(Lock::Recipients(self.recipient.clone())),
            Some(path) => {
                let content = read_secret(path).context(ReadPassphraseSnafu { path })?;
                let passphrase = Passphrase::parse(&content).context(ParsePassphraseSnafu { path })?;
                Ok(Lock::Passphrase(passphrase))
            }
        }
    }
}

/// Encrypts lines as they arrive, and checks that they are complete.
struct Transfer<'a> {
    encryptor: Encryptor<BufWriter<NamedTempFile>>,
    reader: Reader,
    path: &'a Path,
}

impl Transfer<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        self.reader.push(bytes).context(ReceiveSnafu)?;
        self.encryptor.write(bytes).context(EncryptSnafu { path: self.path })
    }

    /// Writes the last line.
    fn end(self, identity: Option<&Identity>) -> Result<Encryptor<BufWriter<NamedTempFile>>, BackupError> {
        let mut encryptor = self.encryptor;
        encryptor.write(&Archive::end(identity)).context(EncryptSnafu { path: self.path })?;
        Ok(encryptor)
    }
}

/// Copies the objects of a stopped server.
async fn copy_snapshot(snapshot: Snapshot, copy: &mut Transfer<'_>) -> Result<(), BackupError> {
    for chunk in Archive::new(snapshot, Timestamp::now()).into_chunks() {
        copy.write(&chunk)?;
        // So that a signal is noticed.
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Copies the objects of a running server. It has to have the identity of the data directory.
async fn copy_running(
    identity: &Identity,
    kubeconfig: &Path,
    data_dir: &Path,
    copy: &mut Transfer<'_>,
) -> Result<(), BackupError> {
    let address = address(kubeconfig).context(FindAddressSnafu { path: kubeconfig })?;
    let failed = RequestSnafu { address, path: data_dir };
    let client = connect(identity, address).await.context(FindAddressSnafu { path: kubeconfig })?;
    let request = Request::get(backup::PATH).body(Body::empty()).map_err(kube::Error::HttpError);
    let response =
        client.send(request.context(failed)?).await.context(RequestSnafu { address, path: data_dir })?;
    let status = response.status();
    ensure!(status.is_success(), RefuseSnafu { address, status });

    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.context(RequestSnafu { address, path: data_dir })?;
        if let Some(bytes) = frame.data_ref() {
            copy.write(bytes)?;
        }
    }
    Ok(())
}

/// Returns the address of the server that has written a kubeconfig.
fn address(kubeconfig: &Path) -> Option<SocketAddr> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).ok()?;
    let server = kubeconfig.clusters.first()?.cluster.as_ref()?.server.as_deref()?;
    server.strip_prefix("https://")?.trim_end_matches('/').parse().ok()
}

/// Returns a client of the server with this identity.
async fn connect(identity: &Identity, address: SocketAddr) -> Option<Client> {
    let kubeconfig = Kubeconfig::from_yaml(&identity.kubeconfig(address)).ok()?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.ok()?;
    Client::try_from(config).ok()
}

/// The directory of a file.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a temporary file beside the final one, which only its owner can read.
fn create(out: &Path) -> io::Result<NamedTempFile> {
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    tempfile::Builder::new().prefix(&format!(".{name}.")).suffix(".partial").tempfile_in(parent(out))
}

/// Flushes the file to the disk and gives it its name.
fn publish(file: BufWriter<NamedTempFile>, out: &Path, overwrite: bool) -> Result<(), BackupError> {
    let failed = WriteFileSnafu { path: out };
    let file = file.into_inner().map_err(io::IntoInnerError::into_error).context(failed)?;
    file.as_file().sync_all().context(failed)?;
    let renamed = if overwrite { file.persist(out) } else { file.persist_noclobber(out) };
    match renamed {
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => FindFileSnafu { path: out }.fail(),
        Err(error) => Err(error.error).context(failed),
        // The directory contains the name.
        Ok(_) => std::fs::File::open(parent(out)).and_then(|directory| directory.sync_all()).context(failed),
    }
}
