//! Settings that the scenario's file must refuse.

use serde::Deserialize;
use tollway_scenario::file::Scenario;
use tollway_scenario::tables::SystemTables;
use toml::Table;

/// Settings of an experiment that must be refused with a message.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// The name in the table `refused`.
    pub name: String,
    /// Values by key, as in `--set`.
    pub set: Table,
    /// Text that some mistake's message has to contain.
    pub message: String,
}

impl Refused {
    /// Adds `refused.NAME.told`: 1 if `scenario` with these settings is refused with the message,
    /// otherwise 0.
    pub(crate) fn report(&self, scenario: &Scenario, systems: &mut SystemTables) {
        let sets: Vec<String> = self.set.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let told = match Scenario::parse(scenario.file(), scenario.text(), &sets) {
            Ok(_) => false,
            Err(e) => e.mistakes().iter().any(|mistake| mistake.to_string().contains(&self.message)),
        };
        systems.set("refused", &[("settings", &self.name)], "told", f64::from(u8::from(told)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_with_the_message_counts() {
        let text = "name = \"t\"\nduration = \"1 s\"\nnode = { a = {}, b = {} }\nlink.l = { from = \"a\", to = \"b\", rate = \"1 Mbps\" }\n";
        let scenario = Scenario::parse("t.toml", text, &[] as &[&str]).unwrap();
        let told = |value: &str, message: &str| {
            let set = Table::from_iter([("link.l.rate".to_owned(), value.into())]);
            let mut systems = SystemTables::default();
            Refused { name: "x".into(), set, message: message.into() }.report(&scenario, &mut systems);
            systems.numbers().collect::<Vec<_>>()
        };
        let is = |told: f64| vec![("refused.x.told".to_owned(), told)];
        assert_eq!(told("0 Mbps", "rate"), is(1.0));
        assert_eq!(told("0 Mbps", "largest"), is(0.0), "refused for another reason");
        assert_eq!(told("2 Mbps", "rate"), is(0.0), "not refused");
    }
}
