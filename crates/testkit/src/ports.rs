//! Free ports for servers that cannot choose one themselves.

use std::{
    io,
    net::TcpListener,
    sync::atomic::{AtomicU32, Ordering},
};

use crate::KubeServerError;

/// The first port. The range is below the ephemeral ports of the system, one of which could otherwise be assigned to an
/// outgoing connection between the choice of the port and its use.
const FIRST: u16 = 20_000;
/// The number of ports in the range.
const COUNT: u16 = 12_000;
/// The distance between the first ports of processes with consecutive IDs; no test needs more ports.
const STRIDE: u32 = 101;

/// The number of ports that this process has tried.
static TRIED: AtomicU32 = AtomicU32::new(0);

/// Returns a free port that was not returned before in this process.
pub fn free_port() -> Result<u16, KubeServerError> {
    let next = || {
        let offset =
            std::process::id().wrapping_mul(STRIDE).wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
        FIRST + u16::try_from(offset % u32::from(COUNT)).unwrap_or_default()
    };
    first_free(std::iter::repeat_with(next).take(COUNT.into()))
        .map_err(|source| KubeServerError::Prepare { what: "a port".to_owned(), source })
}

fn first_free(mut ports: impl Iterator<Item = u16>) -> io::Result<u16> {
    let free = ports.find_map(|port| match TcpListener::bind(("127.0.0.1", port)) {
        Ok(_) => Some(Ok(port)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => None,
        Err(error) => Some(Err(error)),
    });
    free.unwrap_or_else(|| Err(io::ErrorKind::AddrInUse.into()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_port_is_returned_twice() {
        let ports: BTreeSet<_> = (0..50).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.len(), 50);
        assert!(ports.iter().all(|port| (20_000..32_000).contains(port)), "{ports:?}");
    }

    #[test]
    fn a_port_in_use_is_skipped() {
        let holder = TcpListener::bind("127.0.0.1:0").unwrap();
        let (taken, free) = (holder.local_addr().unwrap().port(), free_port().unwrap());
        assert_eq!(first_free([taken, free].into_iter()).unwrap(), free);
        assert_eq!(first_free([taken].into_iter()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
