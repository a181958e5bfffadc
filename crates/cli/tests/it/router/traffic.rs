//! Traffic through a router: every law, every kind of packet, NAT.

use super::Lab;
use super::network::await_it;
use crate::common;

const RATE: f64 = 20e6;

#[test]
fn bulk_tcp_runs_at_the_rate_in_both_directions() {
    let _alone = common::alone();
    common::measured(|| {
        let Some(lab) = Lab::new("rate") else { return };
        let router = lab.router(&["--dev", "sr", "--up", "20Mbps", "--down", "20Mbps", "--law", "fq_codel"]);
        for options in [&["-t", "3", "-O", "1"][..], &["-t", "3", "-O", "1", "-R"]] {
            let rate = lab.iperf3("5201", options);
            // 1448 of 1500 bytes are payload.
            assert!((0.75 * RATE..RATE * 1448.0 / 1500.0 * 1.02).contains(&rate), "{options:?}: {rate}");
        }
        let status = router.status(&lab);
        for (way, word) in status["ways"].as_array().unwrap().iter().zip(["up", "down"]) {
            assert_eq!(way["direction"], word);
            assert!(
                way["bytes"].as_u64().unwrap() > 6_000_000 && way["dropped"].as_u64().unwrap() > 0,
                "{way}"
            );
            assert_eq!(
                (&way["unsent"], &way["missed"], &way["refused"]),
                (&0.into(), &0.into(), &0.into()),
                "{way}"
            );
        }
        let text = router.text(&lab);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("fq_codel at sr"), "{text}");
        router.end();
        assert_eq!(lab.interfaces(), "", "nothing stays");
    });
}

#[test]
fn every_law_carries_a_transfer() {
    let _alone = common::alone();
    let Some(lab) = Lab::new("laws") else { return };
    for law in ["fq_codel", "dualpi2", "pie", "codel", "red", "droptail", "xcp", "fcp", "rcp"] {
        let router = lab.router(&["--dev", "sr", "--up", "20Mbps", "--law", law]);
        let rate = lab.iperf3("5202", &["-n", "2M"]);
        assert!((0.3 * RATE..1.1 * RATE).contains(&rate), "{law}: {rate}");
        router.end();
    }
}

#[test]
fn each_kind_of_packet_passes_and_is_counted() {
    let _alone = common::alone();
    let Some(lab) = Lab::new("kinds") else { return };
    let router = lab.router(&["--dev", "sr", "--up", "20Mbps", "--down", "20Mbps"]);
    let packets = |way: usize| router.status(&lab)["ways"][way]["packets"].as_u64().unwrap();
    // The first request waits until the kernel has checked its link-local addresses.
    lab.await_ping("fd02::2");
    for (to, size, count) in
        [("10.2.0.2", 100, 1), ("10.2.0.2", 4000, 3), ("fd02::2", 100, 1), ("fd02::2", 4000, 3)]
    {
        let before = [packets(0), packets(1)];
        assert!(lab.ping(to, size, false), "{to} {size}");
        for way in [0, 1] {
            // Neighbour discovery crosses the link, too.
            assert!(packets(way) >= before[way] + count, "{to} {size} {way}");
        }
    }
    // ARP is left alone.
    lab.ip("r", "neigh flush dev sr");
    lab.ip("s", "neigh flush dev s0");
    lab.await_ping("10.2.0.2");
    // A packet too long for the next network is reported to its sender.
    lab.ip("r", "link set sr mtu 1400");
    lab.ip("s", "link set s0 mtu 1400");
    assert!(!lab.ping("10.2.0.2", 1450, true));
    let words = ["ip", "route", "get", "10.2.0.2"];
    assert!(lab.says("c", &words).contains("mtu 1400"), "{}", lab.says("c", &words));
    assert!(lab.iperf3("5203", &["-n", "1M"]) > 0.3 * RATE);
}

#[test]
fn nat_and_connection_tracking_see_each_packet_once() {
    let _alone = common::alone();
    let Some(lab) = Lab::new("nat") else { return };
    let rules = "table ip t {\n\
        counter opened { }\n\
        counter sent { }\n\
        counter returned { }\n\
        chain f { type filter hook forward priority 0; ct state new tcp dport 5204 counter name opened; \
            icmp type echo-request counter name sent; icmp type echo-reply counter name returned; }\n\
        chain p { type nat hook postrouting priority 100; oifname \"sr\" masquerade; }\n}\n";
    let file = lab.file("nat.nft", rules);
    if !lab.command("r", &["nft", "-f", &file]).status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no nftables: `apt-get install nftables`");
        return;
    }
    // The server has no way back but to the router's own address.
    lab.ip("s", "route del default");
    let _router = lab.router(&["--dev", "sr", "--up", "20Mbps", "--down", "20Mbps"]);
    assert!(lab.iperf3("5204", &["-n", "1M"]) > 0.3 * RATE);
    assert_eq!(lab.pings("10.2.0.2", 20, "0.01", 56, false), 20);
    let counted = |name: &str| {
        let said = lab.says("r", &["nft", "list", "counter", "ip", "t", name]);
        let words: Vec<&str> = said.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "packets").expect("a counter");
        words[at + 1].parse::<u32>().expect("a number")
    };
    assert_eq!((counted("opened"), counted("sent"), counted("returned")), (2, 20, 20));
}

#[test]
fn tagged_frames_cross_a_bridge_unchanged() {
    let _alone = common::alone();
    let Some(lab) = Lab::new("tags") else { return };
    for command in
        ["link add br0 type bridge", "link set cr master br0", "link set sr master br0", "link set br0 up"]
    {
        lab.ip("r", command);
    }
    let router = lab.router(&["--dev", "sr", "--up", "20Mbps", "--down", "20Mbps"]);
    let receiver = "import socket,sys\n\
        s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW,socket.htons(3)); s.bind(('s0',0)); s.settimeout(10)\n\
        s.setsockopt(263,8,1); print('ready',flush=True)\n\
        while True:\n\
        \x20 data,anc,_,_=s.recvmsg(2000,200)\n\
        \x20 tag=[int.from_bytes(d[16:18],'little') for _,t,d in anc if t==8 and len(d)>=20]\n\
        \x20 if b'tagged payload' in data: print(tag[0] if tag else -1, len(data)); break\n";
    let sender = "import socket\n\
        s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW); s.bind(('c0',0))\n\
        ip=bytes.fromhex('4500002a00000000401100000a0100020a020002')+b'\\x1f\\x90\\x00\\x50\\x00\\x16\\x00\\x00'\n\
        s.send(b'\\xff'*6+b'\\x02\\0\\0\\0\\0\\x01'+b'\\x81\\x00\\x00\\x2a\\x08\\x00'+ip+b'tagged payload')\n";
    let mut child = lab.command("s", &["python3", "-c", receiver]);
    let mut child = child.stdout(std::process::Stdio::piped()).spawn().expect("python3");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let before = router.status(&lab)["ways"][0]["packets"].as_u64().unwrap();
    // The bridge forwards once its ports have listened.
    let mut seen = None;
    await_it("a tagged frame", || {
        lab.says("c", &["python3", "-c", sender]);
        std::thread::sleep(std::time::Duration::from_millis(200));
        if router.status(&lab)["ways"][0]["packets"].as_u64().unwrap() > before {
            seen = lines.next().map(Result::unwrap);
        }
        seen.is_some()
    });
    assert_eq!(seen.unwrap(), "42 56", "tag and length without it");
    let _ = child.wait();
}
