//! `tollway router` between three namespaces: a client, the router, a server.

mod faults;
mod network;
mod tenants;
mod traffic;

use network::Lab;
