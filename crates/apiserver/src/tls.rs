//! The socket's certificate and the administrator's token, made anew at every start, and the kubeconfig that holds both.

use std::net::{IpAddr, SocketAddr};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};
use snafu::{ResultExt, Snafu};
use uuid::Uuid;

/// Why no certificate could be made.
#[derive(Debug, Snafu)]
pub enum TlsError {
    /// The certificate could not be made.
    #[snafu(display("failed to make the server's certificate: {source}"))]
    MakeCertificate {
        /// Why.
        source: rcgen::Error,
    },
    /// The TLS library refused it.
    #[snafu(display("failed to configure TLS: {source}"))]
    ConfigureTls {
        /// Why.
        source: rustls::Error,
    },
}

/// The administrator's token. It is compared by its hash, so that the time taken tells nothing of it.
#[derive(Clone)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Token(…)")
    }
}

impl Token {
    /// A new one: 244 random bits.
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

/// What a listener needs.
#[derive(Debug)]
pub struct Identity {
    /// The configuration of the listener.
    pub config: rustls::ServerConfig,
    authority: String,
}

impl Identity {
    /// A certificate for an address, signed by an authority whose key is forgotten at once.
    pub fn generate(address: IpAddr) -> Result<Self, TlsError> {
        let authority_key = KeyPair::generate().context(MakeCertificateSnafu)?;
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        authority.distinguished_name.push(DnType::CommonName, "vitistack-apiserver-ca");
        let authority_certificate = authority.self_signed(&authority_key).context(MakeCertificateSnafu)?;
        let issuer = Issuer::new(authority, authority_key);

        let key = KeyPair::generate().context(MakeCertificateSnafu)?;
        let mut params =
            CertificateParams::new(vec!["localhost".to_owned()]).context(MakeCertificateSnafu)?;
        params.subject_alt_names.push(SanType::IpAddress(address));
        params.distinguished_name.push(DnType::CommonName, "vitistack-apiserver");
        let certificate = params.signed_by(&key, &issuer).context(MakeCertificateSnafu)?;

        let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context(ConfigureTlsSnafu)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .context(ConfigureTlsSnafu)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config, authority: authority_certificate.pem() })
    }

    /// A kubeconfig with the administrator's rights.
    #[must_use]
    pub fn kubeconfig(&self, address: SocketAddr, token: &Token) -> String {
        let authority = STANDARD.encode(&self.authority);
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: vitistack\n  cluster:\n    server: https://{address}\n    certificate-authority-data: {authority}\nusers:\n- name: admin\n  user:\n    token: {}\ncontexts:\n- name: vitistack\n  context:\n    cluster: vitistack\n    user: admin\n    namespace: default\ncurrent-context: vitistack\n",
            token.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_is_the_token() {
        let token = Token::generate();
        let text = token.0.clone();
        assert!(token.is(&text));
        assert!(!token.is(""));
        assert!(!token.is(&text[1..]));
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
}
