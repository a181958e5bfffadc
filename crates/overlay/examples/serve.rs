use std::path::Path;
use tollway_overlay::config::Site;
use tollway_overlay::{server::Server, tls::Ends};
fn main() {
    let path = std::env::args().nth(1).unwrap();
    let site = Site::load(Path::new(&path)).unwrap();
    let ends = site.keys.as_ref().map(|keys| Ends::load(keys, &site.rules).unwrap());
    let epoch =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let mut server = Server::open(&site, ends, epoch, 1).unwrap();
    server
        .run(|s, _| {
            for n in s.take_notes() {
                eprintln!("{n}");
            }
            false
        })
        .unwrap();
}
