//! Where a cluster may be served.

use http::Uri;
use snafu::{OptionExt, ensure};

use super::{Refusal, RefusalSnafu};
use crate::egress::{Reach, reach};

/// Refuses every server but one with https at a host name or at an address that a cluster may be served at.
pub(super) fn check_server(server: &str) -> Result<(), Refusal> {
    let is_secure =
        server.split_at_checked(8).is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("https://"));
    ensure!(
        is_secure,
        RefusalSnafu { field: "a cluster.server without https", fix: "use an https:// address" }
    );

    let server: Option<Uri> = server.parse().ok();
    let host = server.as_ref().and_then(Uri::host).context(RefusalSnafu {
        field: "a cluster.server that is not a URL",
        fix: "use the form https://host:port",
    })?;

    ensure!(
        !host.contains('%'),
        RefusalSnafu {
            field: "a cluster.server with the zone of an address",
            fix: "use an address that a cluster is served at"
        }
    );
    let reach = reach(host);
    ensure!(
        reach != Reach::Unclear,
        RefusalSnafu {
            field: "a cluster.server whose host is neither a name nor an address",
            fix: "write an address as four numbers, such as 198.51.100.7, or use a host name whose last label starts with a letter"
        }
    );
    ensure!(
        reach != Reach::LinkLocal,
        RefusalSnafu {
            field: "a cluster.server on a link-local, unspecified or multicast address",
            fix: "use an address that a cluster is served at"
        }
    );
    Ok(())
}
