//! Serves the API on loopback until interrupted: `apiserver [ADDRESS [DATA_DIR]]`.
//! Without a data directory objects are in memory and the kubeconfig is `./kubeconfig`.

use std::path::PathBuf;

use vitistack_apiserver::{ServeOptions, serve};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let listen = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned()).parse()?;
    let data_dir = arguments.next().map(PathBuf::from);
    let kubeconfig = data_dir.is_none().then(|| PathBuf::from("kubeconfig"));
    let serving = serve(ServeOptions { listen, data_dir, kubeconfig }).await?;
    tokio::signal::ctrl_c().await?;
    serving.stop().await;
    Ok(())
}
