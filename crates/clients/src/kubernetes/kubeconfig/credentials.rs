//! Whether the credentials of a kubeconfig can be used.
//!
//! The client panics if a token cannot be sent in a header, and reports neither the field nor the fix for a certificate that
//! cannot be read. So everything is checked before a client is built.

use base64::{Engine, prelude::BASE64_STANDARD};
use kube::config::{AuthInfo, Cluster};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use secrecy::ExposeSecret;
use snafu::ensure;

use super::{Refusal, RefusalSnafu};

const INLINE: &str = "put a token, or client-certificate-data and client-key-data, into the file";
const CERTIFICATE: &str = "put the base64 of one or more certificates in PEM into it";
const KEY: &str = "put the base64 of a private key in PEM into it";

/// Refuses users that run programs or read files, and inline credentials that cannot be used.
pub(super) fn check_user(user: &AuthInfo) -> Result<(), Refusal> {
    let refused = [
        (user.exec.is_some(), "user.exec"),
        (user.auth_provider.is_some(), "user.auth-provider"),
        (user.token_file.is_some(), "user.tokenFile"),
        (user.client_certificate.is_some(), "user.client-certificate"),
        (user.client_key.is_some(), "user.client-key"),
    ];
    if let Some((_, field)) = refused.into_iter().find(|(present, _)| *present) {
        return RefusalSnafu { field, fix: INLINE }.fail();
    }

    let token = user.token.as_ref().map(ExposeSecret::expose_secret);
    let password = user.password.as_ref().map(ExposeSecret::expose_secret);
    check_token(token)?;
    check_login(user.username.as_deref(), password)?;
    check_identity(user)
}

/// A token is sent in a header, and ends at the first space.
fn check_token(token: Option<&str>) -> Result<(), Refusal> {
    let Some(token) = token else { return Ok(()) };
    ensure!(
        !token.is_empty(),
        RefusalSnafu { field: "an empty user.token", fix: "put a token into it, or remove it" }
    );
    ensure!(
        !token.ends_with(['\n', '\r']),
        RefusalSnafu {
            field: "a user.token with a line break at its end",
            fix: "remove the line break, for example with echo -n"
        }
    );
    ensure!(
        token.bytes().all(|byte| byte.is_ascii_graphic()),
        RefusalSnafu {
            field: "a user.token with a space, a line break or a character outside ASCII",
            fix: "put the token into it as the cluster issued it"
        }
    );
    Ok(())
}

/// User name and password are sent together, separated by a colon.
fn check_login(username: Option<&str>, password: Option<&str>) -> Result<(), Refusal> {
    let has_control = |text: Option<&str>| text.is_some_and(|text| text.chars().any(char::is_control));
    ensure!(
        !has_control(username) && !username.is_some_and(|name| name.contains(':')),
        RefusalSnafu {
            field: "a user.username with a colon, a line break or another control character",
            fix: "remove the character"
        }
    );
    ensure!(
        !has_control(password),
        RefusalSnafu {
            field: "a user.password with a line break or another control character",
            fix: "remove the character"
        }
    );
    Ok(())
}

/// Checks the client certificate and its key, each by itself.
fn check_identity(user: &AuthInfo) -> Result<(), Refusal> {
    let certificate = user.client_certificate_data.as_deref();
    let key = user.client_key_data.as_ref().map(ExposeSecret::expose_secret);
    ensure!(
        certificate.is_some() == key.is_some(),
        RefusalSnafu {
            field: "a user with only one of client-certificate-data and client-key-data",
            fix: "add the other one, or remove both"
        }
    );

    let is_certificate = |data: &str| certificates(data).is_some();
    ensure!(
        certificate.is_none_or(is_certificate),
        RefusalSnafu { field: "a user.client-certificate-data that cannot be read", fix: CERTIFICATE }
    );
    let is_key = |data: &str| decoded(data).is_some_and(|pem| PrivateKeyDer::from_pem_slice(&pem).is_ok());
    ensure!(
        key.is_none_or(is_key),
        RefusalSnafu { field: "a user.client-key-data that cannot be read", fix: KEY }
    );
    Ok(())
}

/// Checks the certificate authority of a cluster.
pub(super) fn check_authority(cluster: &Cluster) -> Result<(), Refusal> {
    let is_authority = |data: &str| {
        let mut roots = RootCertStore::empty();
        certificates(data).is_some_and(|found| found.into_iter().all(|each| roots.add(each).is_ok()))
    };
    ensure!(
        cluster.certificate_authority_data.as_deref().is_none_or(is_authority),
        RefusalSnafu { field: "a cluster.certificate-authority-data that cannot be read", fix: CERTIFICATE }
    );
    Ok(())
}

/// Returns the certificates in a field, if it has any and all of them can be read.
fn certificates(data: &str) -> Option<Vec<CertificateDer<'static>>> {
    let pem = decoded(data)?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().ok()?;
    (!found.is_empty()).then_some(found)
}

fn decoded(data: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(data).ok()
}
