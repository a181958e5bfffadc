use tollway_overlay::{rules::Rules, server::Server};
fn main() {
    let port: u16 = std::env::args().nth(1).unwrap().parse().unwrap();
    let mut server = Server::open(Rules::open("a"), ([127,0,0,1],port).into(), None, 1).unwrap();
    server.run(|s,_| { for n in s.take_notes() { eprintln!("{n}"); } false }).unwrap();
}
