//! Protocol messages of the server.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A client's `CONNECT` options; unknown keys are ignored.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Connect {
    /// True if the client requests `+OK` for every operation.
    pub verbose: bool,
    /// The tenant's name.
    pub user: Option<String>,
    /// The tenant's password.
    pub pass: Option<String>,
    /// The tenant's token, instead of name and password.
    pub auth_token: Option<String>,
    /// The client's name, for display.
    pub name: Option<String>,
    /// The client library's language.
    pub lang: Option<String>,
    /// False if the client's own subscriptions must not receive its messages; true by default.
    pub echo: Option<bool>,
    /// True if the client supports headers.
    pub headers: bool,
    /// True if the client requests a 503 answer to requests without receivers.
    pub no_responders: bool,
}

/// The server's `INFO` message.
#[derive(Clone, Debug, Serialize)]
pub struct Info<'a> {
    /// The server's identifier, which equals the site's name.
    pub server_id: &'a str,
    /// The site's name.
    pub server_name: &'a str,
    /// The NATS version whose protocol this is.
    pub version: &'a str,
    /// The version of Tollway.
    pub tollway: &'a str,
    /// The protocol's number.
    pub proto: u8,
    /// The address for clients.
    pub host: &'a str,
    /// The port for clients.
    pub port: u16,
    /// True: the site supports headers.
    pub headers: bool,
    /// False: the site keeps no streams.
    pub jetstream: bool,
    /// Limit of headers and payload together, in bytes.
    pub max_payload: usize,
    /// The connection's number.
    pub client_id: u64,
    /// The client's address.
    pub client_ip: Option<IpAddr>,
    /// True if clients must name a tenant.
    pub auth_required: bool,
    /// True if the connection continues with TLS.
    pub tls_required: bool,
    /// True if the server requests a client certificate.
    pub tls_verify: bool,
    /// Addresses of this and other sites for clients.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub connect_urls: &'a [String],
    /// True if the site ends (lame duck mode): clients must connect elsewhere.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ldm: bool,
}

impl Info<'_> {
    /// The `INFO` line.
    pub fn to_line(&self) -> String {
        format!("INFO {}\r\n", serde_json::to_string(self).expect("strings and numbers"))
    }
}

/// Appends the line of `MSG`, or of `HMSG` with `header` bytes of headers.
///
/// `len` is the length in bytes of headers and payload together.
pub fn message_line(
    out: &mut Vec<u8>,
    subject: &[u8],
    sid: &[u8],
    reply: Option<&[u8]>,
    header: Option<usize>,
    len: usize,
) {
    out.extend_from_slice(if header.is_some() { b"HMSG " } else { b"MSG " });
    out.extend_from_slice(subject);
    out.push(b' ');
    out.extend_from_slice(sid);
    out.push(b' ');
    if let Some(reply) = reply {
        out.extend_from_slice(reply);
        out.push(b' ');
    }
    if let Some(header) = header {
        number(out, header);
        out.push(b' ');
    }
    number(out, len);
    out.extend_from_slice(b"\r\n");
}

/// An error line. Clients show its text unchanged.
pub fn error_line(text: &str) -> String {
    // A quote would end the text.
    format!("-ERR '{}'\r\n", text.replace(['\'', '\r', '\n'], " "))
}

fn number(out: &mut Vec<u8>, number: usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_their_line() {
        let line = |reply: Option<&[u8]>, header, len| {
            let mut out = Vec::new();
            message_line(&mut out, b"a.b", b"7", reply, header, len);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(line(None, None, 0), "MSG a.b 7 0\r\n");
        assert_eq!(line(Some(b"r"), None, 1234), "MSG a.b 7 r 1234\r\n");
        assert_eq!(line(Some(b"r"), Some(10), 12), "HMSG a.b 7 r 10 12\r\n");
        assert_eq!(error_line("it's\r\n"), "-ERR 'it s  '\r\n");
    }

    #[test]
    fn a_client_may_say_little_or_much() {
        let connect: Connect = serde_json::from_str("{}").unwrap();
        assert!(!connect.verbose && connect.user.is_none());
        let connect: Connect =
            serde_json::from_str(r#"{"verbose":true,"user":"u","pass":null,"jwt":"x","protocol":1}"#)
                .unwrap();
        assert!(connect.verbose && connect.user.as_deref() == Some("u") && connect.pass.is_none());
    }
}
