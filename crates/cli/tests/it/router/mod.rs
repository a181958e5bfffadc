//! `tollway router` between three namespaces: a client, the router, a server.

mod faults;
mod network;
mod traffic;

use network::Lab;
