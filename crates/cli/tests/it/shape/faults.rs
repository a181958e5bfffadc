//! Faults of the agent, of its guardian, and of the reader of its log.

use super::*;

/// Standard error is a full pipe, and the policies are wrong again and again.
#[test]
fn a_log_that_is_not_read_stops_no_pacing() {
    let folder = folder("unread");
    let (mut full, _reader) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.write(&[b' '; 1 << 12]).is_ok() {}
    full.set_nonblocking(false).unwrap();
    let mut agent = Agent::start_telling(":", &folder, &policies(1, "a", 80), OwnedFd::from(full).into());
    wait("an answer", || agent.status());
    for wrong in 0..12 {
        agent.write(&policies(1, &format!("wrong {wrong}"), 80).replace("rate", "rat"));
        let trouble = |status: &Value| status["trouble"].as_str().is_some_and(|text| text.contains("rat"));
        wait("trouble", || agent.status().filter(trouble));
    }
    agent.write(&policies(1, "b", 80));
    wait("the new policies", || agent.status().filter(|status| status["version"] == "b"));
    agent.signal("TERM");
    assert!(wait("the end", || agent.process.try_wait().unwrap()).success());
}

#[test]
fn a_stopped_agent_leaves_nothing_paced_and_goes_on_where_it_was() {
    if Reach::find() == Reach::Children {
        eprintln!("SKIPPED: this system's Yama module lets nobody but root reach the test's sockets");
        return;
    }
    let folder = folder("frozen");
    let traffic = Traffic::start(2);
    let paced = || traffic.limits().iter().all(Option::is_some).then_some(());
    let free = || traffic.limits().iter().all(Option::is_none).then_some(());
    let mut agent = Agent::start(&folder, &traffic.policies("a", 80));
    wait("paces", paced);
    agent.signal("STOP");
    let begin = Instant::now();
    wait("freedom", free);
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    agent.signal("CONT");
    wait("paces again", paced);
    agent.signal("TERM");
    assert!(agent.process.wait().unwrap().success());
    assert_eq!(free(), Some(()));
}

#[test]
fn the_next_agent_frees_what_one_killed_with_its_guardian_has_left() {
    if Reach::find() == Reach::Children {
        eprintln!("SKIPPED: this system's Yama module lets nobody but root reach the test's sockets");
        return;
    }
    let folder = folder("both");
    let traffic = Traffic::start(2);
    let free = || traffic.limits().iter().all(Option::is_none).then_some(());
    let first = Agent::start(&folder, &traffic.policies("a", 40));
    wait("paces", || traffic.limits().iter().all(Option::is_some).then_some(()));
    let (agent, guardian) = (first.process.id().to_string(), first.guardian().unwrap().to_string());
    // The guardian first: after the agent's death it would free the connections at once.
    assert!(Command::new("kill").args(["-KILL", &guardian, &agent]).status().unwrap().success());
    drop(first);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(free(), None, "nobody is there to free them");
    // Policies without a match leave no connection paced, and later ones don't take old paces for
    // limits of programs.
    let mut next = Agent::start(&folder, &policies(1, "b", 80));
    wait("an answer", || next.status());
    assert_eq!(free(), Some(()));
    next.write(&traffic.policies("c", 80));
    wait("paces of the new policies", || {
        traffic.limits().iter().all(|limit| limit.is_some_and(|limit| limit > 4_000_000)).then_some(())
    });
    next.signal("TERM");
    assert!(next.process.wait().unwrap().success());
    assert_eq!(free(), Some(()));
}

/// sd_notify(3), and `WatchdogSec=` of a service.
#[test]
fn a_service_manager_hears_of_the_agent_while_it_works() {
    let folder = folder("notify");
    let path = folder.join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let first = format!("export NOTIFY_SOCKET={} WATCHDOG_USEC=600000", path.display());
    let mut agent = Agent::start_after(&first, &folder, &policies(1, "a", 80));
    let hear = || {
        let mut bytes = [0; 64];
        manager.recv(&mut bytes).map(|len| String::from_utf8_lossy(&bytes[..len]).into_owned())
    };
    assert_eq!(hear().unwrap(), "READY=1\nWATCHDOG=1");
    for _ in 0..3 {
        assert_eq!(hear().unwrap(), "WATCHDOG=1");
    }
    agent.signal("STOP");
    manager.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    // One message may have been sent before.
    let silent = [(); 3].map(|()| hear().is_err());
    assert!(silent[2], "a stopped agent says nothing");
    agent.signal("CONT");
    agent.signal("TERM");
    assert!(agent.process.wait().unwrap().success());
}
