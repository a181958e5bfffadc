//! Minimal servers for programs in emulated networks: HTTP with WebSocket, and DNS.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

/// Serves HTTP/1.1 at an address, and returns the port. The response to `GET /N` is N bytes; a
/// WebSocket gets pongs.
pub(crate) fn serve(at: impl Into<IpAddr>) -> u16 {
    let listener = TcpListener::bind((at.into(), 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that closes ends only its own connection.
            std::thread::spawn(move || drop(answer(stream)));
        }
    });
    port
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let head = read_head(&mut reader)?;
        let Some(request) = head.first() else { return Ok(()) };
        if head.iter().any(|line| line.eq_ignore_ascii_case("upgrade: websocket")) {
            assert!(
                head.iter().any(|line| line.ends_with(NONCE)),
                "the one nonce whose answer is known here"
            );
            write!(
                stream,
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {ACCEPT}\r\n\r\n"
            )?;
            return pong(&mut reader, &mut stream);
        }
        let path = request.split(' ').nth(1).unwrap_or_default();
        let mut left: u64 = path.trim_start_matches('/').parse().unwrap_or(0);
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {left}\r\n\r\n")?;
        let chunk = vec![b'x'; 1 << 16];
        while left > 0 {
            let len = left.min(chunk.len() as u64) as usize;
            stream.write_all(&chunk[..len])?;
            left -= len as u64;
        }
    }
}

/// Reads the lines of a request or a response up to the empty line; none at the end of the
/// connection.
pub(crate) fn read_head(reader: &mut impl BufRead) -> std::io::Result<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            return Ok(lines);
        }
        lines.push(line.trim().to_owned());
    }
}

/// Answers each ping of a WebSocket with a pong of the same payload (RFC 6455 § 5.5).
fn pong(reader: &mut impl Read, stream: &mut TcpStream) -> std::io::Result<()> {
    loop {
        let mut head = [0; 6];
        reader.read_exact(&mut head)?;
        let [0x89, len, mask @ ..] = head else { return Ok(()) };
        assert!((0x80..0x80 + 126).contains(&len), "clients mask, and a control frame is short");
        let mut payload = vec![0; usize::from(len & 0x7f)];
        reader.read_exact(&mut payload)?;
        payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        stream.write_all(&[&[0x8a, payload.len() as u8], &payload[..]].concat())?;
    }
}

/// Serves DNS over UDP at an address and a port, or any free port if it is 0. Returns the port.
/// Every name has the server's address.
pub(crate) fn serve_names(at: Ipv4Addr, port: u16) -> u16 {
    let socket = UdpSocket::bind((at, port)).unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            if let Some(answer) = answer_name(&buffer[..len], at) {
                let _ = socket.send_to(&answer, from as SocketAddr);
            }
        }
    });
    port
}

/// The response to a DNS query (RFC 1035 § 4): an address for queries of type A, no record for
/// others.
fn answer_name(query: &[u8], address: Ipv4Addr) -> Option<Vec<u8>> {
    let name = query.get(12..)?.iter().position(|&byte| byte == 0)?;
    let question = query.get(12..12 + name + 5)?;
    let known = question[name + 1..] == [0, 1, 0, 1];
    let mut answer = query[..2].to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(known), 0, 0, 0, 0]);
    answer.extend(question);
    if known {
        // The name is at byte 12; type A, class IN, a minute, four bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend(address.octets());
    }
    Some(answer)
}

/// The example of RFC 6455 § 1.3: a nonce and its response, so that no SHA-1 is needed.
pub(crate) const NONCE: &str = "dGhlIHNhbXBsZSBub25jZQ==";
pub(crate) const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
