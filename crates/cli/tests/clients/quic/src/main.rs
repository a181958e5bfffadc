//! A QUIC connection that sends as fast as it may, and its receiver.
//!
//! ```text
//! quic-client receive LISTEN CERTIFICATE
//! quic-client send FROM TO CERTIFICATE
//! ```
//!
//! The receiver writes its certificate to the file CERTIFICATE once it listens. Both run until they
//! are killed.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use quinn::{ClientConfig, Endpoint, ServerConfig};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

type Outcome = Result<(), Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let _ = rustls::crypto::ring::default_provider().install_default();
    match words[..] {
        ["receive", listen, file] => receive(listen.parse()?, file).await,
        ["send", from, to, file] => send(from.parse()?, to.parse()?, file).await,
        _ => Err("quic-client receive LISTEN CERTIFICATE, or send FROM TO CERTIFICATE".into()),
    }
}

async fn receive(listen: SocketAddr, file: &str) -> Outcome {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    let certificate = CertificateDer::from(certified.cert);
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let config = ServerConfig::with_single_cert(vec![certificate.clone()], key.into())?;
    let endpoint = Endpoint::server(config, listen)?;
    // Whole at once, so that no sender reads a part.
    let part = format!("{file}.part");
    std::fs::write(&part, &certificate)?;
    std::fs::rename(&part, file)?;
    let connection = endpoint.accept().await.ok_or("the endpoint is closed")?.await?;
    let mut stream = connection.accept_uni().await?;
    while stream.read_chunk(usize::MAX, false).await?.is_some() {}
    Ok(())
}

async fn send(from: SocketAddr, to: SocketAddr, file: &str) -> Outcome {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(std::fs::read(file)?))?;
    let mut endpoint = Endpoint::client(from)?;
    endpoint.set_default_client_config(ClientConfig::with_root_certificates(Arc::new(roots))?);
    let connection = endpoint.connect(to, "localhost")?.await?;
    let mut stream = connection.open_uni().await?;
    let data = vec![0xa5; 1 << 20];
    loop {
        stream.write_all(&data).await?;
    }
}
