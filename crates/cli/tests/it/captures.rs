//! Files of `tollway run --pcap`, as read by Wireshark's own program. Prints `SKIPPED` without
//! `tshark`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{self, succeeds};

const SCENARIO: &str = r#"name = "captured"
duration = "3 s"

[node.a]
[node.b]

[link.wire]
from = "a"
to = "b"
rate = "10 Mbps"
delay = "10 ms"
limit = "200 packets"
law = "xcp"

[link.wire.reverse]
loss = 0.02

[flow.explicit]
from = "a"
to = "b"
law = "xcp"
size = "300 kB"

[flow.plain]
from = "a"
to = "b"
law = "dctcp"
l4s = true
size = "300 kB"

[cbr.c]
from = "a"
to = "b"
rate = "100 kbps"

[variant.acp]

[variant.tcp]
"flow.*.encoding" = "tcp-option"

[variant.draft]
"flow.*.encoding" = "draft-3"
"#;

fn tshark(folder: &Path, file: &str, filter: &str, fields: &[&str]) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../share/wireshark/tollway.lua");
    let mut command = Command::new("tshark");
    command.current_dir(folder).arg("-X").arg(format!("lua_script:{}", script.display()));
    command.args([
        "-o",
        "ip.check_checksum:TRUE",
        "-o",
        "tcp.check_checksum:TRUE",
        "-o",
        "udp.check_checksum:TRUE",
    ]);
    command.args(["-r", file, "-Y", filter, "-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn wireshark_reads_it() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no tshark to read captures with");
        return;
    }
    let folder = common::folder("captures", "wireshark");
    fs::write(folder.join("captured.toml"), SCENARIO).expect("the scenario");
    succeeds(&folder, &["run", "captured.toml", "--pcap", "out.pcapng", "--pcap-link", "wire*", "--quiet"]);

    for (variant, tolled, count) in [
        ("acp", "tollway.acp.flag.tolled == 1", 200),
        ("tcp", "tollway.option.cwnd", 200),
        ("draft", "tollway.xcp.format == 1", 200),
    ] {
        let file = format!("out.{variant}.pcapng");
        let read = |filter: &str, fields: &[&str]| tshark(&folder, &file, filter, fields);
        // After the draft's header, a script can't give TCP the length of a truncated packet.
        let tcp = if variant == "draft" { "" } else { "|| tcp.checksum.status == 0" };
        let wrong = format!("_ws.malformed || ip.checksum.status == 0 || udp.checksum.status == 0 {tcp}");
        assert_eq!(read(&wrong, &["frame.number"]), Vec::<String>::new(), "{variant}");
        assert!(read(tolled, &["frame.number"]).len() > count, "{variant}");
        let links = read("frame", &["frame.interface_name"]);
        assert!(links.iter().any(|l| l == "wire") && links.iter().any(|l| l == "wire.reverse"), "{variant}");
        assert!(read("ip.dsfield.ecn == 1", &["frame.number"]).len() >= 190, "{variant}: ECT(1)");
        assert!(
            !read("frame.comment contains \"lost on the wire\"", &["frame.number"]).is_empty(),
            "{variant}"
        );
        assert!(read("udp.dstport == 9", &["frame.number"]).len() > 10, "{variant}: cross-traffic");
    }
    // Without losses, Wireshark finds no gaps in the sequence numbers.
    let gaps = tshark(
        &folder,
        "out.tcp.pcapng",
        "tcp.srcport == 40000 && tcp.analysis.lost_segment && tcp.len > 0",
        &["frame.number"],
    );
    assert_eq!(gaps, Vec::<String>::new());
    // The round trip stated by an XCP sender: 20 ms and the queueing delay.
    let rtts = tshark(
        &folder,
        "out.acp.pcapng",
        "tollway.acp.rtt > 0.02 && tollway.acp.rtt < 0.2",
        &["tollway.acp.rtt"],
    );
    assert!(rtts.len() > 150, "{}", rtts.len());
}
