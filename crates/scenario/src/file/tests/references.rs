//! The reference of keys, as written into the book.

use super::plans::repository;
use super::{parse, show};
use crate::file::keys::families;
use crate::file::reference::{example, reference_pages};

#[test]
fn the_manual_says_what_the_table_of_keys_says() {
    for (file, text) in reference_pages() {
        let path = repository().join("docs/src").join(file);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == text,
            "{} is out of date: run `UPDATE_DOCS=1 cargo test -p tollway-scenario manual`",
            path.display()
        );
    }
}

/// The ids that links within the reference lead to: of keys and of headings.
#[test]
fn links_within_the_manual_s_reference_lead_to_an_id() {
    let pages = reference_pages();
    let ids = |text: &str| -> Vec<String> {
        let keys =
            text.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned);
        let headings = text.lines().filter_map(|line| line.strip_prefix("## "));
        let kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
        let headings =
            headings.map(|h| h.chars().filter(kept).collect::<String>().to_lowercase().replace(' ', "-"));
        keys.chain(headings).collect()
    };
    for (file, text) in &pages {
        let here = ids(text);
        let repeated = here.iter().find(|id| here.iter().filter(|other| other == id).count() > 1);
        assert_eq!(repeated, None, "{file}");
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let Some((other, id)) = target.split_once('#') else { continue };
            let to = pages.iter().find(|(name, _)| name == if other.is_empty() { file } else { &other });
            // Other chapters are checked with the whole book.
            let Some((_, to)) = to else { continue };
            assert!(ids(to).iter().any(|known| known == id), "{file}: {target}");
        }
    }
}

/// Every section has an example, which is valid over a small network.
#[test]
fn examples_of_sections_are_valid() {
    const NETWORK: &str = r#"
        name = "examples"
        duration = "10 s"
        node = { client = { count = 4 }, left = {}, right = {}, server = {} }
        flow.f = { from = "client", to = "server", law = "newreno" }
        [link]
        access = { from = "client", to = "left", rate = "100 Mbps" }
        uplink = { from = "left", to = "right", rate = "10 Mbps", delay = "20 ms" }
        exit = { from = "right", to = "server", rate = "100 Mbps" }
    "#;
    fn merge(into: &mut toml::Table, from: toml::Table) {
        for (key, value) in from {
            match (into.get_mut(&key), value) {
                (Some(toml::Value::Table(old)), toml::Value::Table(new)) => merge(old, new),
                (_, value) => drop(into.insert(key, value)),
            }
        }
    }
    for section in families().into_iter().flat_map(|(_, _, sections)| sections) {
        let text = example(section.header).unwrap_or_else(|| panic!("{} has no example", section.header));
        let mut file: toml::Table = NETWORK.parse().unwrap();
        if section.header.starts_with("[overlay") {
            let needed = ["[overlay.hop.NAME]", "[overlay.group.NAME]", "[overlay.sender.NAME]"];
            for header in needed {
                merge(&mut file, example(header).unwrap().parse().unwrap());
            }
        }
        merge(&mut file, text.parse().unwrap_or_else(|error| panic!("{}: {error}", section.header)));
        // Flows of an explicit law need it at every link.
        let explicit =
            ["xcp", "fcp"].into_iter().find(|law| text.contains(&format!("[flow.f]\nlaw = \"{law}\"")));
        let links: Vec<String> = explicit.iter().map(|law| format!("link.*.law={law}")).collect();
        let links: Vec<&str> = links.iter().map(String::as_str).collect();
        let scenario =
            parse(&file.to_string(), &links).unwrap_or_else(|e| panic!("{}: {}", section.header, show(&e)));
        assert!(scenario.notes().is_empty(), "{}: {:?}", section.header, scenario.notes());
    }
}
