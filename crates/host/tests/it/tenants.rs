//! Tenants: the connections for which a law is selected.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;

use socket2::SockRef;
use tollway_host::{Group, Law, Programs, Settings};

use super::{alone, loaded};

/// True if a new connection is under the law.
fn selected(programs: &Programs, listener: &TcpListener) -> bool {
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let congestion = SockRef::from(&client).tcp_congestion().unwrap();
    congestion.starts_with(programs.name().as_bytes())
}

#[test]
fn connections_of_no_tenant_stay_under_the_machine_s_law() {
    let _alone = alone();
    let Some(mut programs) = loaded(&Settings { tenants: true, ..Settings::new(Law::Fcp) }) else { return };
    let group = Group::enter(&format!("tollway-tenants-{}", std::process::id())).unwrap();
    programs.attach(group.path()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = rustix::process::getuid().as_raw();
    let inode = |path: &std::path::Path| std::fs::metadata(path).unwrap().ino();
    assert!(!selected(&programs, &listener), "there is no tenant");
    programs.admit(None, Some(own + 1)).unwrap();
    programs.admit(Some(1 << 40), None).unwrap();
    programs.admit(Some(inode(group.path())), Some(own + 1)).unwrap();
    assert!(!selected(&programs, &listener), "another user, another group, and another user in this group");
    programs.admit(Some(inode(group.path().parent().unwrap())), Some(own)).unwrap();
    assert!(selected(&programs, &listener), "the group is below the tenant's");
}

#[test]
fn a_tenant_of_a_user_has_that_user_s_connections() {
    let _alone = alone();
    let Some(mut programs) = loaded(&Settings { tenants: true, ..Settings::new(Law::Xcp) }) else { return };
    let group = Group::enter(&format!("tollway-user-{}", std::process::id())).unwrap();
    programs.attach(group.path()).unwrap();
    programs.admit(None, Some(rustix::process::getuid().as_raw())).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(selected(&programs, &listener));
}

/// Of two laws in one group, each has the sockets that select it.
#[test]
fn sockets_that_select_a_law_themselves_are_all_that_it_has() {
    let _alone = alone();
    let load = |law| loaded(&Settings { chosen: true, ..Settings::new(law) });
    let (Some(mut xcp), Some(mut fcp)) = (load(Law::Xcp), load(Law::Fcp)) else { return };
    let group = Group::enter(&format!("tollway-chosen-{}", std::process::id())).unwrap();
    xcp.attach(group.path()).unwrap();
    fcp.attach(group.path()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(!selected(&xcp, &listener) && !selected(&fcp, &listener));
    let open = |programs: &Programs| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_tcp_congestion(programs.name().as_bytes()).unwrap();
        socket.connect(&listener.local_addr().unwrap().into()).unwrap();
        socket
    };
    let _sockets = [open(&xcp), open(&fcp), open(&fcp)];
    let counted = |programs: &Programs| programs.counts().unwrap().opened;
    assert_eq!((counted(&xcp), counted(&fcp)), (1, 2));
}
