//! The embedded Kubernetes API as a process of its own.

use std::io::Write;

use snafu::ResultExt;
use vitistack_apiserver::{ServeOptions, serve};
use vitistack_runtime::shutdown;

use super::{Error, ListenForEndSnafu, PrepareSnafu, ServeSnafu, WriteOutputSnafu};

/// Serves until the process is told to end.
pub fn run(options: ServeOptions, output: &mut dyn Write) -> Result<(), Error> {
    let runtime = tokio::runtime::Runtime::new().context(PrepareSnafu)?;
    runtime.block_on(async {
        let end = shutdown::on_signal().context(ListenForEndSnafu)?;
        let kubeconfig = options
            .kubeconfig
            .clone()
            .or_else(|| Some(options.data_dir.as_ref()?.join("kubeconfig")))
            .unwrap_or_default();
        let serving = serve(options).await.context(ServeSnafu)?;
        writeln!(
            output,
            "serving on https://{}\nexport KUBECONFIG='{}'",
            serving.address,
            kubeconfig.display()
        )
        .context(WriteOutputSnafu)?;
        end.cancelled().await;
        serving.stop().await;
        Ok(())
    })
}
