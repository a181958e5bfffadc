//! Datagrams that no correct process sends: forged, corrupted, or of another file.

use super::*;

/// The test is a hostile router. It sends data far ahead, wrong bytes in place of the next data,
/// and resets with initial sequence numbers of the past. All are dropped and counted, and both
/// flows arrive whole.
#[test]
fn forged_and_corrupted_datagrams_end_no_flow() {
    let file = THREE.replace("5 MB", "300 kB")
        + r#"
    [flow.g]
    from = "a"
    to = "b"
    law = "xcp"
    size = "300 kB"
"#;
    let Some(nodes) = Nodes::of("forged", &file) else { return };
    let [a, r, b] = [0, 1, 2]
        .map(|i: usize| nodes.at[i].split_once('=').unwrap().1.parse::<std::net::SocketAddr>().unwrap());
    // A process that another test is just starting holds this test's descriptors until it executes.
    let until = Instant::now() + Duration::from_secs(20);
    let router = loop {
        match UdpSocket::bind(r) {
            Ok(router) => break router,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        pause(10);
    };
    router.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let over = AtomicBool::new(false);
    let [told_a, told_b] = std::thread::scope(|scope| {
        scope.spawn(|| {
            // By flow: the initial sequence number, and the highest offset of its data since.
            let (mut buffer, mut first, mut seen) = ([0; 2000], [0, 0], [0, 0]);
            // Longer than the wait for the other processes, in case one does not end.
            let until = Instant::now() + Duration::from_secs(150);
            while !over.load(Ordering::Relaxed) && Instant::now() < until {
                let Ok((len, from)) = router.recv_from(&mut buffer) else { continue };
                let bytes = &mut buffer[..len];
                let word =
                    |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
                let (label, seq, data) = (word(bytes, 4), word(bytes, SEQ_AT), bytes[3] & 1 != 0);
                let flow = label as usize / 2;
                if from != a {
                    let _ = router.send_to(bytes, a);
                    continue;
                }
                if bytes[3] & SYN != 0 {
                    first[flow] = seq;
                }
                let passed = seq.wrapping_sub(first[flow]);
                let fresh = data && passed > seen[flow];
                if fresh {
                    seen[flow] = passed;
                }
                let forge = |bytes: &[u8], seq: u32, flags: u8| {
                    let mut bytes = bytes.to_vec();
                    bytes[3] = flags;
                    bytes[SEQ_AT..SEQ_AT + 4].copy_from_slice(&seq.to_be_bytes());
                    bytes[len - 1] ^= 0x55;
                    let _ = router.send_to(&bytes, b);
                };
                match (flow, passed) {
                    // Far beyond the window, and a copy of the current one.
                    (0, 1) if fresh => {
                        let _ = router.send_to(bytes, b);
                        forge(bytes, seq.wrapping_add(100_000_000), bytes[3]);
                        forge(bytes, seq, bytes[3]);
                        (0..3).for_each(|number| forge(bytes, number, RST));
                    }
                    // In place of the right datagram, which must be sent again.
                    (1, 50) if fresh => forge(bytes, seq, bytes[3]),
                    _ => {
                        let _ = router.send_to(bytes, b);
                    }
                }
            }
        });
        let b = nodes.start("b");
        let told = [nodes.start("a").output(), b.output()];
        over.store(true, Ordering::Relaxed);
        told
    });
    let (error_a, error_b) = (text(&told_a.stderr), text(&told_b.stderr));
    assert_eq!((told_a.status.code(), told_b.status.code()), (Some(0), Some(0)), "{error_a}{error_b}");
    let told: Value = serde_json::from_slice(&told_b.stdout).expect("JSON");
    let delivered = [0, 1].map(|i: usize| told["flows"][i]["delivered_bytes"].as_u64().unwrap());
    assert_eq!((delivered, &told["runs"][0]["live"]["datagrams_senseless"]), ([300_000; 2], &3.into()));
}

/// Offset of the segment's sequence number in a datagram, in bytes.
const SEQ_AT: usize = 32;
/// Flags in the fourth byte: SYN, RST.
const SYN: u8 = 1 << 2;
const RST: u8 = 1 << 4;

/// A flow is identified by its position in the file, and in another file another flow has it.
#[test]
fn processes_that_read_different_files_take_no_flow_for_another() {
    let flow = |name: &str, size: &str| {
        format!("[flow.{name}]\nfrom = \"a\"\nto = \"b\"\nlaw = \"xcp\"\nsize = \"{size}\"\n")
    };
    let (base, _) = THREE.split_once("[flow.f]").unwrap();
    let (f, g, h) = (flow("f", "200 kB"), flow("g", "100 kB"), flow("h", "100 kB"));
    let Some(nodes) = Nodes::of("versions", &format!("{base}{f}{g}{h}")) else { return };
    let _r = nodes.start("r");
    let other = Nodes {
        file: nodes.file.with_file_name("processes-versions-other.toml"),
        at: nodes.at.clone(),
        patience: nodes.patience,
    };
    std::fs::write(&other.file, format!("{base}{g}{f}{h}")).unwrap();
    let (b, a) = (other.start("b"), nodes.start("a"));
    for (told, end, other) in [(a.output(), "sent_bytes", "b"), (b.output(), "delivered_bytes", "a")] {
        let error = text(&told.stderr);
        assert_eq!(told.status.code(), Some(1), "{error}");
        for flow in ["f", "g"] {
            let reads =
                format!("flow `{flow}`: the process at the other end, node `{other}`, has another scenario");
            assert!(error.contains(&reads), "{error}");
        }
        // The flow that is equal in both files is served.
        assert!(!error.contains("flow `h`"), "{error}");
        let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
        let flows = told["flows"].as_array().unwrap();
        let bytes = |name: &str| flows.iter().find(|flow| flow["flow"] == name).unwrap()[end].as_u64();
        assert!(bytes("h") >= Some(100_000) && bytes("f") < Some(1000) && bytes("g") < Some(1000), "{told}");
    }
}
