//! The certificate of the socket, the administrator's token, and the kubeconfig with both.
//!
//! The authority and the token are kept in the data directory, so that a kubeconfig stays valid when the server
//! restarts. The certificate is created at every start.

use std::net::{IpAddr, SocketAddr};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use snafu::{ResultExt, Snafu};
use uuid::Uuid;

/// Indicates that the certificate could not be created.
#[derive(Debug, Snafu)]
pub enum TlsError {
    /// The certificate could not be generated.
    #[snafu(display("failed to create the server certificate: {source}"))]
    CreateCertificate {
        /// The underlying error.
        source: rcgen::Error,
    },
    /// The TLS library rejected it.
    #[snafu(display("failed to configure TLS: {source}"))]
    ConfigureTls {
        /// The underlying error.
        source: rustls::Error,
    },
}

/// What clients know the server by, and the server its administrator.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Credentials {
    /// The administrator's token.
    pub token: Token,
    /// The private key of the authority, as PEM.
    authority_key: String,
    /// The certificate of the authority, as PEM.
    authority: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Credentials(…)")
    }
}

impl Credentials {
    /// Generates a token and an authority.
    pub fn generate() -> Result<Self, TlsError> {
        let key = KeyPair::generate().context(CreateCertificateSnafu)?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "vitistack-apiserver-ca");
        let authority = params.self_signed(&key).context(CreateCertificateSnafu)?;
        Ok(Self { token: Token::generate(), authority_key: key.serialize_pem(), authority: authority.pem() })
    }

    /// Returns a kubeconfig with administrator permissions.
    #[must_use]
    pub fn kubeconfig(&self, address: SocketAddr) -> String {
        let authority = STANDARD.encode(&self.authority);
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: vitistack\n  cluster:\n    server: https://{address}\n    certificate-authority-data: {authority}\nusers:\n- name: admin\n  user:\n    token: {}\ncontexts:\n- name: vitistack\n  context:\n    cluster: vitistack\n    user: admin\n    namespace: default\ncurrent-context: vitistack\n",
            self.token.0
        )
    }

    /// Creates a certificate for an address and returns the configuration of a listener.
    pub fn listener(&self, address: IpAddr) -> Result<rustls::ServerConfig, TlsError> {
        let authority_key = KeyPair::from_pem(&self.authority_key).context(CreateCertificateSnafu)?;
        let issuer =
            Issuer::from_ca_cert_pem(&self.authority, authority_key).context(CreateCertificateSnafu)?;
        let key = KeyPair::generate().context(CreateCertificateSnafu)?;
        let mut params =
            CertificateParams::new(vec!["localhost".to_owned()]).context(CreateCertificateSnafu)?;
        params.subject_alt_names.push(SanType::IpAddress(address));
        params.distinguished_name.push(DnType::CommonName, "vitistack-apiserver");
        let certificate = params.signed_by(&key, &issuer).context(CreateCertificateSnafu)?;

        let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context(ConfigureTlsSnafu)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .context(ConfigureTlsSnafu)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The administrator's token. Its hash is compared, so that the duration reveals nothing about it.
#[derive(Clone, Serialize, Deserialize)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Token(…)")
    }
}

impl Token {
    /// Generates a token with 244 random bits.
    #[must_use]
    pub fn generate() -> Self {
        let bytes = [*Uuid::new_v4().as_bytes(), *Uuid::new_v4().as_bytes()].concat();
        Self(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Whether this is the token, in a time that does not depend on where it differs.
    #[must_use]
    pub fn is(&self, given: &str) -> bool {
        let (own, given) = (Sha256::digest(&self.0), Sha256::digest(given));
        own.iter().zip(given.iter()).fold(0_u8, |difference, (one, other)| difference | (one ^ other)) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_token_matches() {
        let token = Token::generate();
        let text = token.0.clone();
        assert!(token.is(&text));
        assert!(!token.is(""));
        assert!(!token.is(&text[1..]));
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
}
