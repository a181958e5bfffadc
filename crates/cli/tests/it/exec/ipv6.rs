//! IPv6 in emulated networks, beside IPv4.

use std::net::UdpSocket;

use super::*;

/// True if this kernel has IPv6; else prints `SKIPPED`.
pub(super) fn has_ipv6() -> bool {
    let has = Path::new("/proc/net/if_inet6").exists();
    if !has {
        eprintln!("SKIPPED: this kernel has no IPv6");
    }
    has
}

/// Downloads a megabyte over TCP, and asks a question over UDP.
pub(super) fn talk(tcp: u16, udp: u16) -> String {
    let socket = UdpSocket::bind("[::]:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.send_to(&programs::question(7), ("fd77::2", udp)).unwrap();
    let answer = socket.recv(&mut [0; 512]).unwrap();
    format!("{}\nanswer={answer}", programs::download(&format!("[fd77::2]:{tcp}"), 1_000_000))
}

#[test]
fn ipv6_is_carried_counted_and_captured_as_ipv4() {
    if !namespaces() || !has_ipv6() {
        return;
    }
    let (tcp, udp) = (serve(Ipv4Addr::LOCALHOST), serve_names(Ipv4Addr::LOCALHOST, 0));
    let pcap = folder("ipv6-pcap").join("program.pcap");
    let ports = (tcp.to_string(), format!("{udp}/udp"));
    let network = ["--link", "1Gbps 5ms", "--publish", &ports.0, "--publish", &ports.1, "--pcap"];
    let network = [&network[..], &[pcap.to_str().unwrap()]].concat();
    let ran = exec("ipv6", &network, &format!("v6 {tcp} {udp}"));
    assert_eq!(ran.said["bytes"], 1e6);
    // The kernel sends nothing by itself.
    let strays = ran.report["strays"].as_object().unwrap();
    assert!(strays.values().all(|count| count == 0), "{strays:?}");
    let flows = ran.report["flows"].as_array().unwrap();
    let from_server = |protocol: &str| {
        let of = |flow: &&Value| flow["protocol"] == protocol && flow["source"] == "fd77::2";
        flows.iter().find(of).unwrap_or_else(|| panic!("{flows:#?}"))
    };
    assert_eq!(from_server("udp")["flow"].as_str().unwrap().split(':').next(), Some("udp server"));
    let download = from_server("tcp");
    let count = |key: &str| download[key].as_f64().unwrap();
    assert!(count("delay_min_ms") >= 5.0, "{download:#}");
    // A train's segments count separately, with headers of 72 bytes: IPv6's, TCP's and a timestamp.
    assert!(ran.report["longest_train_bytes"].as_u64() > Some(0));
    assert!(count("payload_bytes") >= 1e6 && count("payload_bytes") / count("packets") <= 1428.0);
    let header = (count("bytes") - count("payload_bytes")) / count("packets");
    assert!((72.0..73.0).contains(&header), "{header}: {download:#}");
    // The capture has the same flows.
    let (mut capture, mut captured) = (&fs::read(pcap).unwrap()[24..], 0.0);
    while let Some(header) = capture.first_chunk::<16>() {
        let len = u32::from_ne_bytes(header[8..12].try_into().unwrap()) as usize;
        let packet = &capture[16..16 + len];
        assert_eq!((packet[0] >> 4, usize::from(u16::from_be_bytes([packet[4], packet[5]]))), (6, len - 40));
        let from_server = packet[6] == 6 && packet[23] == 2;
        captured += f64::from(u8::from(from_server)) * (len - 40 - usize::from(packet[52] >> 4) * 4) as f64;
        capture = &capture[16 + len..];
    }
    assert_eq!(captured, count("payload_bytes"));
}

#[test]
fn without_ipv6_the_ports_of_ipv4_are_open() {
    if !namespaces() {
        return;
    }
    let port = serve(Ipv4Addr::LOCALHOST).to_string();
    let off = ["--link", "1Gbps", "--sysctl", "net.ipv6.conf.all.disable_ipv6=1", "--localhost", &port];
    if !has_ipv6() {
        return;
    }
    for more in [&["--publish", &port][..], &[]] {
        let ran = exec("ipv6-off", &[&off[..], more].concat(), &format!("download localhost:{port} 1000"));
        assert_eq!(ran.said["bytes"], 1e3);
    }
}

#[test]
fn names_resolve_to_ipv4_first_and_to_ipv6() {
    if !namespaces() || !has_ipv6() {
        return;
    }
    let script = "grep server /etc/hosts; getent ahosts server; if command -v ping > /dev/null; then \
                  ping -6 -c 1 -W 5 server > /dev/null || echo lost; fi";
    let output = tollway(&["exec", "--link", "10Mbps", "-q", "--", "sh", "-c", script]).output().unwrap();
    let said = text(&output.stdout);
    let addresses: Vec<&str> = said.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(addresses[..2], ["10.77.0.2", "fd77::2"], "{said}");
    assert!(addresses[2] == "10.77.0.2" && addresses.last() == Some(&"fd77::2"), "{said}");
}
