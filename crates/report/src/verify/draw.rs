//! Random networks as scenario files.

use std::fmt::Write;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tollway_law::Aim;

/// A random network under one law, as the text of a scenario file. FCP's flows get budgets of 0.5,
/// 1 or 2. The text for a seed is the same on every machine.
///
/// One to five links of 10 to 100 Mb/s make a line or a tree towards `r0`. Two to ten flows climb
/// it, each from a router to one nearer to `r0`. Each has a host whose link gives it a base round
/// trip of 20 to 200 ms. All data flow towards `r0` and all acknowledgements away from it, so
/// neither takes capacity from the other.
///
/// The first half of the time is for convergence: at least 100 of the longest round trips, and at
/// least 5 s. The second half is judged; for FCP only the last quarter. There, a price that fell to
/// its minimum while other links were full needs forty doublings to recover.
pub(super) fn scenario_text(law: &str, seed: u64) -> String {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let links: usize = random.random_range(1..=5);
    let flows: usize = random.random_range(2..=10);
    let tree = Tree::of(&mut random, links);
    let parents = &tree.parents;
    let mut text = String::new();
    let mut body = String::new();
    for i in 0..=links {
        let _ = writeln!(body, "[node.r{i}]");
    }
    for (i, parent) in parents.iter().enumerate() {
        // Uniform in the logarithm: as many slow links as fast ones.
        let rate = libm::round(10.0 * libm::pow(10.0, random.random::<f64>()) * 10.0) / 10.0;
        let _ = write!(
            body,
            "\n[link.{SHARED}{}]\nfrom = \"r{}\"\nto = \"r{parent}\"\nrate = \"{rate} Mbps\"\ndelay = \"1 ms\"\nlimit = \"{} packets\"\nlaw = \"{law}\"\n",
            i + 1,
            i + 1,
            // The rate times the longest possible round trip, 200 ms.
            libm::ceil(rate * 1e6 * 0.2 / (8.0 * 1500.0)),
        );
    }
    // A separate generator keeps networks equal for all laws.
    let mut budgets = Pcg64Mcg::seed_from_u64(seed ^ BUDGETS);
    let aim = tollway_theory::aims().find(|(word, _)| *word == law).map(|(_, aim)| aim);
    let mut longest = 0.0_f64;
    for f in 1..=flows {
        let (from, to, hops) = tree.climb(&mut random);
        let rtt = libm::round(20.0 * libm::pow(10.0, random.random::<f64>()));
        longest = longest.max(rtt);
        let start = libm::round(random.random::<f64>() * 1000.0);
        let _ = write!(
            body,
            "\n[node.s{f}]\n[link.access{f}]\nfrom = \"s{f}\"\nto = \"r{from}\"\nrate = \"1 Gbps\"\ndelay = \"{} ms\"\n\
             [flow.f{f}]\nfrom = \"s{f}\"\nto = \"r{to}\"\nlaw = \"{law}\"\nstart = \"{start} ms\"\n",
            rtt / 2.0 - hops as f64,
        );
        if aim == Some(Aim::Proportional) {
            let budget = [0.5, 1.0, 2.0][budgets.random_range(0..3)];
            let _ = writeln!(body, "{law}.budget = {budget:?}");
        }
    }
    let half = (100.0 * longest * 1e-3).max(5.0);
    let _ = write!(
        text,
        "# Drawn by `tollway verify --law {law} --random 1 --seed {seed}`: a {} of {links}, data flowing towards r0.\n\
         name = \"verify-{law}-{seed}\"\ntitle = \"Random network {seed}\"\nduration = \"{} ms\"\nseed = {seed}\n\n\
         [measure]\ninterval = \"500 ms\"\n\n",
        tree.shape(),
        libm::round(1000.0 + 2.0 * half * 1e3),
    );
    if aim == Some(Aim::Proportional) {
        text.truncate(text.len() - 1);
        let _ = write!(text, "warmup = \"{} ms\"\n\n", libm::round(1000.0 + half * 1e3));
    }
    text.push_str(&body);
    text
}

/// Routers and the links between them. Each link leads towards router 0.
pub(super) struct Tree {
    /// The router at the end of link i, which begins at router i + 1.
    pub(super) parents: Vec<usize>,
    line: bool,
}

impl Tree {
    /// Draws a line or a tree of one to `most` links.
    pub(super) fn draw(random: &mut Pcg64Mcg, most: usize) -> Tree {
        let links = random.random_range(1..=most);
        Tree::of(random, links)
    }

    fn of(random: &mut Pcg64Mcg, links: usize) -> Tree {
        let line = random.random_bool(0.5);
        let parents = (0..links).map(|i| if line { i } else { random.random_range(0..=i) }).collect();
        Tree { parents, line }
    }

    /// A route towards router 0: its first router, its last, and the number of links between them.
    pub(super) fn climb(&self, random: &mut Pcg64Mcg) -> (usize, usize, usize) {
        let from = random.random_range(1..=self.parents.len());
        let mut climbed = vec![from];
        while let Some(&at) = climbed.last().filter(|at| **at > 0) {
            climbed.push(self.parents[at - 1]);
        }
        let hops = random.random_range(1..climbed.len());
        (from, climbed[hops], hops)
    }

    pub(super) fn shape(&self) -> &'static str {
        if self.line { "line" } else { "tree" }
    }
}

/// A number from `least` to `most`, uniform in the logarithm.
pub(super) fn spread(random: &mut Pcg64Mcg, least: f64, most: f64) -> f64 {
    least * libm::pow(most / least, random.random::<f64>())
}

/// Mixed with a network's seed for the budgets of its flows.
const BUDGETS: u64 = 0x6275_6467_6574_7321;

/// The prefix of names of shared links.
pub(super) const SHARED: &str = "up";

#[cfg(test)]
mod tests {
    use tollway_scenario::file::Scenario;

    use super::*;

    #[test]
    fn every_seed_is_a_scenario() {
        for (seed, (law, _)) in (0..500).flat_map(|seed| tollway_theory::aims().map(move |aim| (seed, aim))) {
            let text = scenario_text(law, seed);
            if let Err(error) = Scenario::parse::<&str>("drawn.toml", &text, &[]) {
                panic!("{law}, {seed}: {error}\n{text}");
            }
        }
        assert_ne!(scenario_text("xcp", 1), scenario_text("xcp", 2));
    }
}
