use std::process::Command;

use tollway_exec::{Emulation, EmulationError};

#[test]
fn a_page_comes_over_two_links() -> Result<(), Box<dyn std::error::Error>> {
    let network = r#"
        name = "row"
        duration = "1 s"
        node = { client = {}, router = {}, server = {} }
        link.access = { from = "client", to = "router", rate = "50 Mbps", delay = "5 ms" }
        link.uplink = { from = "router", to = "server", rate = "10 Mbps", delay = "20 ms" }"#;
    let net = match Emulation::parse(network) {
        Err(EmulationError::NotAllowed(why)) => {
            eprintln!("SKIPPED: {why}");
            return Ok(());
        }
        net => net?,
    };
    net.serve("server", Command::new("python3").args(["-m", "http.server", "8000"]))?;
    let page = net.run("client", Command::new("curl").args(["-sSf", "http://server:8000/"]))?;
    assert!(page.status.success());
    let report = net.report()?;
    assert_eq!(report["links"][0]["drops"]["queue_full"], 0);
    Ok(())
}
