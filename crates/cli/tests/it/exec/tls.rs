//! `--tls`: secure connections that clients verify, without an option of theirs.

use super::*;

/// Runs `script` beside a server of the file `page`, whose TLS port has two names. Returns its
/// output.
fn beside_a_secure_server(name: &str, script: &str) -> String {
    let dir = folder(name);
    fs::write(dir.join("page"), "x".repeat(300_000)).unwrap();
    let exec =
        ["exec", "-q", "--link", "50Mbps 5ms", "--name", "server=api.example.com", "--tls", "443:8000"];
    let serve = ["--localhost", "443", "--serve", "python3 -m http.server 8000"];
    let mut command = tollway(&[&exec[..], &serve, &["--", "sh", "-ec", script]].concat());
    let output = command.current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn curl_verifies_the_names_of_the_node() {
    if !namespaces() || !programs::installed("curl") || !programs::installed("python3") {
        return;
    }
    let script = "for name in server api.example.com localhost 10.77.0.2; do \
                  curl -sS --fail https://$name/page | wc -c; done
                  ! curl -sS https://program/page --connect-to program:443:server:443 2> refused
                  ! env -i PATH=\"$PATH\" curl -sS https://server/page 2>> refused
                  grep -c certificate refused";
    let said = beside_a_secure_server("tls-curl", script);
    assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["300000", "300000", "300000", "300000", "2"]);
}

#[test]
fn python_and_node_verify_the_certificate() {
    if !namespaces() || !programs::installed("python3") {
        return;
    }
    let get = "import urllib.request; print(len(urllib.request.urlopen('https://server/page').read()))";
    // As newer versions do by default.
    let strict = "import ssl, urllib.request; context = ssl.create_default_context(); \
                  context.verify_flags |= ssl.VERIFY_X509_STRICT; \
                  print(len(urllib.request.urlopen('https://server/page', context=context).read()))";
    let mut script = format!("python3 -c \"{get}\"; python3 -c \"{strict}\"");
    let node = programs::installed("node");
    if node {
        script += "; node -e \"require('https').get('https://server/page', (answer) => { let len = 0; \
                   answer.on('data', (bytes) => len += bytes.length); \
                   answer.on('end', () => console.log(len)); })\"";
    }
    let said = beside_a_secure_server("tls-python", &script);
    assert_eq!(said, "300000\n".repeat(2 + usize::from(node)));
}

#[test]
fn a_port_without_a_server_is_named() {
    if !namespaces() || !programs::installed("curl") {
        return;
    }
    let exec = ["exec", "-q", "--link", "50Mbps", "--publish", "none", "--tls", "443:8000"];
    let output = tollway(&[&exec[..], &["--", "curl", "-sS", "https://server/"]].concat()).output().unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("port 8000 of `server` did not accept 1 connections with TLS"), "{said}");
}

#[test]
fn uploads_reach_the_server_and_the_authority_ends_with_the_run() {
    if !namespaces() || !programs::installed("curl") || !programs::installed("python3") {
        return;
    }
    let dir = folder("tls-upload");
    let server = "import http.server\nclass Count(http.server.BaseHTTPRequestHandler):\n    def do_POST(self):\n        \
                  body = self.rfile.read(int(self.headers['Content-Length']))\n        self.send_response(200)\n        \
                  self.end_headers()\n        self.wfile.write(str(len(body)).encode())\n\
                  http.server.HTTPServer(('127.0.0.1', 8000), Count).serve_forever()\n";
    fs::write(dir.join("server.py"), server).unwrap();
    let script = "head -c 2000000 /dev/zero > body; curl -sS --data-binary @body https://server:8443/; \
                  echo; echo $NODE_EXTRA_CA_CERTS";
    let exec = ["exec", "--link", "50Mbps 5ms", "--tls", "8443:8000", "--serve", "python3 server.py"];
    let output =
        tollway(&[&exec[..], &["--", "sh", "-ec", script]].concat()).current_dir(dir).output().unwrap();
    let (said, noted) = (text(&output.stdout), text(&output.stderr));
    let (len, path) = said.trim().split_once('\n').expect(&noted);
    assert_eq!(len, "2000000", "{noted}");
    assert!(noted.contains(&format!("certificate authority of the run: {path}")), "{noted}");
    assert!(!Path::new(path).exists(), "{path} is left");
}
