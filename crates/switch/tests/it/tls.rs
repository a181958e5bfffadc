//! TLS on both sides: a client with a certificate, a switch before a switch before a server.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::common::*;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tollway_switch::agent::Agent;
use tollway_switch::config::Config;

fn openssl(folder: &Path, words: &str) {
    let output = Command::new("openssl").args(words.split(' ')).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An authority, and certificates of it for a switch and for a client.
fn certificates(folder: &Path) {
    let request = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(folder, &format!("{request} -x509 -keyout ca-key.pem -out ca.pem -days 2 -subj /CN=authority"));
    for (name, names) in [("switch", "DNS:switch.test,IP:127.0.0.1"), ("client", "DNS:payments.test")] {
        openssl(folder, &format!("{request} -keyout {name}-key.pem -out {name}.csr -subj /CN={name}"));
        let usage = "basicConstraints=CA:FALSE\n";
        std::fs::write(folder.join("names"), format!("{usage}subjectAltName={names}\n")).unwrap();
        openssl(
            folder,
            &format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -out {name}.pem -days 2 -extfile names"
            ),
        );
    }
}

fn start(folder: &Path, text: &str) -> Agent {
    let config =
        Config::parse("test", text, Some(PathBuf::from(folder))).unwrap_or_else(|error| panic!("{error}"));
    Agent::start(config, "test".into(), [7; 16]).unwrap()
}

#[test]
fn frames_and_answers_cross_two_switches_over_tls_and_a_client_is_known_by_its_certificate() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("SKIPPED: there is no `openssl` (see .ci/run for the packages)");
        return;
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("tls");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    certificates(&folder);
    let server = Server::start();
    let tls = "[tls]\ncertificate = \"switch.pem\"\nkey = \"switch-key.pem\"\n";
    let head = "listen = \"127.0.0.1:0\"\nframes = \"u16\"\nanswers = \"in-order\"\n";
    let inner = start(&folder, &format!("{head}{tls}[member.a]\naddress = \"{}\"\n", server.address));
    let outer = start(
        &folder,
        &format!(
            "{head}{tls}client-ca = \"ca.pem\"\n[upstream]\nca = \"ca.pem\"\nname = \"switch.test\"\n\
             [client.payments]\ntls-name = \"payments.test\"\nweight = 2.0\n[member.b]\naddress = \"{}\"\n",
            inner.listen()[0]
        ),
    );
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("ca.pem")).unwrap()).unwrap();
    let builder = || {
        ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots.clone())
    };
    let certificate = vec![CertificateDer::from_pem_file(folder.join("client.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(folder.join("client-key.pem")).unwrap();
    let name = ServerName::try_from("switch.test").unwrap();
    let config = builder().with_client_auth_cert(certificate, key).unwrap();
    let connection = ClientConnection::new(Arc::new(config), name.clone()).unwrap();
    let mut client = StreamOwned::new(connection, connect(&outer));
    let frames: Vec<Vec<u8>> =
        (0..200u16).map(|number| vec![number as u8; 1 + usize::from(number) * 40]).collect();
    for batch in frames.chunks(20) {
        for body in batch {
            client.write_all(&framed(body)).unwrap();
        }
        for body in batch {
            assert_eq!(&read_framed(&mut client).unwrap(), body);
        }
    }
    let now = status(&outer);
    assert_eq!(now.clients.iter().map(|client| client.name.as_str()).collect::<Vec<_>>(), ["payments"]);
    assert_eq!(server.frames(), frames);
    // Without a certificate there is no way in.
    let config = builder().with_no_client_auth();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stranger = StreamOwned::new(connection, connect(&outer));
    let _ = stranger.write_all(&framed(b"hello"));
    assert_eq!(read_framed(&mut stranger), None);
    drop(client);
    outer.end().unwrap();
    inner.end().unwrap();
    assert_eq!(server.frames().len(), 200);
}
