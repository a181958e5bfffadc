//! A page for browsers of this machine, and the data that it reads every second.

use std::net::SocketAddr;

use serde_json::Value;
use tollway_report::http::{Request, Response, Server};

use super::ServeError;
use crate::status::Product;

/// A server of a page with its own thread, until it is dropped.
#[derive(Debug)]
pub(crate) struct Page(Server);

impl Product {
    /// Serves a page with the status that `read` returns at `address`, which must be a loopback
    /// address. Port 0 selects a free port. The page may load nothing else.
    ///
    /// # Errors
    /// The address is in use, not of this machine, or no loopback address.
    pub(crate) fn serve_page(
        &self,
        address: SocketAddr,
        read: impl Fn() -> Option<Value> + Send + Sync + 'static,
    ) -> Result<Page, ServeError> {
        let wrong = |message| ServeError { message, help: VIEW };
        if !address.ip().is_loopback() {
            let why = "is not a loopback address, and the view is for this machine only";
            return Err(wrong(format!("{address} {why}")));
        }
        let schema = self.schema().to_string();
        let answer = move |request: &Request| {
            let answer = match (request.method.as_str(), request.path.as_str()) {
                ("GET" | "HEAD", "/") => {
                    let page =
                        Response::new(200, "text/html; charset=utf-8", include_str!("page.html").to_owned());
                    page.with("Content-Security-Policy", POLICY)
                }
                ("GET" | "HEAD", "/fields") => Response::new(200, "application/json", schema.clone()),
                ("GET" | "HEAD", "/data") => match read() {
                    Some(status) => Response::new(200, "application/json", status.to_string()),
                    None => Response::words(500, "the agent does not answer\n"),
                },
                _ => Response::words(404, "see /\n"),
            };
            answer.with("Cache-Control", "no-store").with("X-Content-Type-Options", "nosniff")
        };
        let server = Server::serve(address, "view", answer);
        server.map(Page).map_err(|error| wrong(format!("cannot serve the view at {address}: {error}")))
    }
}

impl Page {
    /// The page's URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.0.address())
    }
}

const VIEW: &str = "give a loopback address and a free port: `--view 127.0.0.1:0`";
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      connect-src 'self'; frame-ancestors 'none'";

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use serde_json::json;

    use super::*;

    const PRODUCT: Product = Product::new("test", "", &[]);

    #[test]
    fn a_page_and_its_data_are_served_to_this_machine() {
        let page = PRODUCT.serve_page(([127, 0, 0, 1], 0).into(), || Some(json!({"a": 1}))).unwrap();
        let ask = |path: &str, host: &str| {
            let mut stream = TcpStream::connect(page.0.address()).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        assert!(ask("/", "localhost:1").contains("<title>tollway"));
        assert!(ask("/data", "127.0.0.1").contains("{\"a\":1}"));
        assert!(ask("/data", "evil.example").starts_with("HTTP/1.1 403"));
        assert!(ask("/other", "[::1]:9").starts_with("HTTP/1.1 404"));
        assert!(ask("/fields", "localhost").contains("\"title\":\"tollway test\""));
        let error = PRODUCT.serve_page(([192, 0, 2, 1], 0).into(), || None).unwrap_err();
        assert!(error.to_string().contains("192.0.2.1:0 is not a loopback address"), "{error}");
    }
}
