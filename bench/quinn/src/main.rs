//! quinn in bulk on loopback: Gbit a second of processor time, both ends together, with TLS and
//! without encryption.
//!
//! ```text
//! cargo run --release -- [GIGABYTES]
//! ```
//!
//! Windows and packet sizes are quinn's own, but for the upper bound of MTU discovery, which is set
//! to what ACP's segments take.

use std::error::Error;
use std::sync::Arc;

use quinn::{ClientConfig, Endpoint, MtuDiscoveryConfig, ServerConfig, TransportConfig};

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let bytes = std::env::args().nth(1).map_or(Ok(1.0), |arg| arg.parse::<f64>())? * 1e9;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let encrypted = runtime.block_on(transfer(bytes as u64, tls()?))?;
    let plain = (quinn_plaintext::server_config(), quinn_plaintext::client_config());
    let plain = runtime.block_on(transfer(bytes as u64, plain))?;
    println!("{{\"bytes\": {bytes}, \"tls_gbit_per_cpu_s\": {encrypted:.3}, \"plain_gbit_per_cpu_s\": {plain:.3}}}");
    Ok(())
}

/// Gbit of payload a second of processor time.
async fn transfer(
    bytes: u64,
    (mut server, mut client): (ServerConfig, ClientConfig),
) -> Result<f64, Box<dyn Error + Send + Sync>> {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(1472);
    let mut transport = TransportConfig::default();
    transport.mtu_discovery_config(Some(discovery));
    let transport = Arc::new(transport);
    server.transport_config(Arc::clone(&transport));
    client.transport_config(transport);
    let listener = Endpoint::server(server, "127.0.0.1:0".parse()?)?;
    let addr = listener.local_addr()?;
    let mut sender = Endpoint::client("127.0.0.1:0".parse()?)?;
    sender.set_default_client_config(client);

    let cpu = process_cpu();
    let receiver = tokio::spawn(async move {
        let connection = listener.accept().await.ok_or("closed")?.await?;
        let mut stream = connection.accept_uni().await?;
        let mut received = 0;
        while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
            received += chunk.bytes.len() as u64;
        }
        connection.close(0u32.into(), b"done");
        listener.wait_idle().await;
        Ok::<u64, Box<dyn Error + Send + Sync>>(received)
    });
    let connection = sender.connect(addr, "localhost")?.await?;
    let mut stream = connection.open_uni().await?;
    let data = vec![0xa5; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let n = left.min(data.len() as u64);
        stream.write_all(&data[..n as usize]).await?;
        left -= n;
    }
    stream.finish()?;
    let received = receiver.await??;
    if received != bytes {
        return Err(format!("{received} of {bytes} bytes arrived").into());
    }
    Ok(bytes as f64 * 8e-9 / (process_cpu() - cpu))
}

fn tls() -> Result<(ServerConfig, ClientConfig), Box<dyn Error + Send + Sync>> {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    let certificate = rustls::pki_types::CertificateDer::from(certified.cert);
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone())?;
    let server = ServerConfig::with_single_cert(vec![certificate], key.into())?;
    Ok((server, ClientConfig::with_root_certificates(Arc::new(roots))?))
}

fn process_cpu() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 * 1e-9
}
