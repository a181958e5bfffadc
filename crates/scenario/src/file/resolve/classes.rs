//! Classes of traffic.

use tollway_law::link::Pricing;

use super::Resolver;
use crate::file::keys;
use crate::file::reader::Reader;
use crate::plan::Class;

impl<'a> Resolver<'a> {
    /// Resolves all classes.
    pub(super) fn classes(&mut self) {
        for (name, keys) in self.top.named("class", &keys::CLASS) {
            if self.plan.classes.len() == MOST {
                let message = format!("there are more than {MOST} classes of traffic");
                self.mistakes.add(keys.place(), message, "one too many");
                return;
            }
            let pricing = match keys.word("pricing") {
                "stable" => Pricing::Stable,
                "deadline" => Pricing::Deadline { share: keys.number("share") },
                "priority" => Pricing::Priority { times: keys.number("times") },
                "group" => Pricing::Group { weight: keys.number("weight") },
                _ => Pricing::Standard,
            };
            for (key, pricing) in [("share", "deadline"), ("times", "priority")] {
                if keys.has(key) && keys.word("pricing") != pricing {
                    self.mistakes
                        .add(keys.key_at(key), format!("`{key}` needs the pricing `{pricing}`"), "no effect")
                        .help(format!("add `pricing = \"{pricing}\"`"));
                }
            }
            let grouped = |class: &Class| matches!(class.pricing, Pricing::Group { .. });
            let other = |class: &Class| !grouped(class) && class.pricing != Pricing::Standard;
            let (law, weight) = (keys.word("law"), keys.number("weight"));
            self.plan.classes.push(Class { name: name.to_owned(), pricing, law, weight });
            if self.plan.classes.iter().any(grouped) && self.plan.classes.iter().any(other) {
                let message =
                    "the pricing `group` uses several currencies, and the other pricings need a single one";
                self.mistakes
                    .add(keys.at("pricing"), message, "with groups")
                    .help("use either the pricing `group` in all classes or in none");
            }
        }
    }

    /// The number of the class that a flow or workload names; 0 for no class.
    pub(super) fn class(&mut self, keys: &Reader<'a>) -> u8 {
        let Some(wanted) = keys.text("class") else { return 0 };
        if let Some(i) = self.plan.classes.iter().position(|class| class.name == wanted) {
            return i as u8 + 1;
        }
        self.unknown("class", &wanted, keys.at("class"));
        0
    }
}

/// Largest number of classes: the number that a port distinguishes, less one for unclassified
/// traffic.
const MOST: usize = tollway_proto::port::ClassQueuesConfig::MOST - 1;
