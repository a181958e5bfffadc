//! The manual's references of keys in Markdown, generated from the tables of keys.

use tollway_law::Time;

use super::keys::{Default, Key, Kind, Section, families};

/// A page of a reference.
struct Page {
    file: &'static str,
    title: String,
    /// Text before the sections.
    head: String,
    sections: Vec<&'static Section>,
}

/// Returns the pages of the reference of scenario files: file name and Markdown.
pub fn reference_pages() -> Vec<(&'static str, String)> {
    let by = "`reference_pages()` in `crates/scenario`";
    let pages: Vec<Page> = families()
        .into_iter()
        .map(|(file, title, sections)| {
            let head = match file == VALUES_PAGE {
                true => VALUES.to_owned(),
                false => format!("[Values]({VALUES_PAGE}#values) has the kinds of values.\n\n"),
            };
            Page { file, title: title.to_owned(), head: written_by(by) + &head, sections }
        })
        .collect();
    let text = |page: &Page| {
        let end = if page.file == VALUES_PAGE { VARIANTS } else { "" };
        format!("{}\n{end}", page_text(page, &pages, example)).trim_end().to_owned() + "\n"
    };
    pages.iter().map(|page| (page.file, text(page))).collect()
}

/// Returns a page on a product's file, with an `example` and the keys of `sections`. `by` names the
/// function that writes the page, and `elsewhere` the files with the keys of further sections.
pub fn page_markdown(
    title: &str,
    by: &str,
    example: &str,
    sections: &[&'static Section],
    elsewhere: &[(&'static str, &'static Section)],
) -> String {
    let head = format!(
        "{}[Values]({VALUES_PAGE}#values) has the kinds of values. An example:\n\n```toml\n{}\n```\n\n",
        written_by(by),
        example.trim()
    );
    let page = |file, head, sections| Page { file, title: title.to_owned(), head, sections };
    let mut pages = vec![page("", head, sections.to_vec())];
    pages.extend(elsewhere.iter().map(|&(file, section)| page(file, String::new(), vec![section])));
    page_text(&pages[0], &pages, |_| None)
}

/// The example of a section of scenario files.
pub(super) fn example(header: &str) -> Option<&'static str> {
    let blocks = include_str!("examples.toml").split("## ").skip(1);
    let mut blocks = blocks.filter_map(|block| block.split_once('\n'));
    blocks.find(|(of, _)| *of == header || header.is_empty() && *of == "top").map(|(_, text)| text.trim())
}

fn written_by(by: &str) -> String {
    format!("<!-- Written by {by} from the table of keys; do not edit. -->\n\n")
}

fn page_text(page: &Page, pages: &[Page], example: fn(&str) -> Option<&'static str>) -> String {
    let mut out = format!("# {}\n\n{}", page.title, page.head);
    for &section in &page.sections {
        let title = if section.header.is_empty() { TOP.to_owned() } else { format!("`{}`", section.header) };
        out += &format!("## {title}\n\n{}\n\n", section.says);
        if let Some(text) = example(section.header) {
            out += &format!("```toml\n{text}\n```\n\n");
        }
        rows(section, page, pages, &mut out);
        out += "\n";
    }
    out.truncate(out.trim_end().len());
    out + "\n"
}

/// Appends a line for each key, one for all keys of an earlier section, and one for all tables.
fn rows(section: &'static Section, page: &Page, pages: &[Page], out: &mut String) {
    let model = model(section, pages);
    let copied =
        |key: &&Key| model.and_then(|model| model.key(key.name)).is_some_and(|other| same(key, other));
    let (copies, own): (Vec<&Key>, Vec<&Key>) = section.keys().partition(copied);
    let (tables, values): (Vec<&Key>, Vec<&Key>) = own.into_iter().partition(|key| table(key.kind).is_some());
    for key in values {
        let default = match key.default {
            Default::Must => "; **required**".to_owned(),
            Default::Is(text) => format!("; `{text}`"),
            Default::Else("") => String::new(),
            Default::Else(text) => format!("; {text}"),
        };
        let id = key_id(section, key);
        *out += &format!(
            "- <a id=\"{id}\"></a>**`{}`** ({}{default}). {}\n",
            key.name,
            takes(key.kind),
            key.says
        );
    }
    if let Some(model) = model {
        let links = copies.iter().map(|key| match table(key.kind) {
            Some(inner) => format!("[`{}`]({})", key.name, place(inner, &heading_id(inner), page, pages)),
            None => format!("[`{}`]({})", key.name, place(model, &key_id(model, key), page, pages)),
        });
        let links: Vec<String> = links.collect();
        let of = place(model, &heading_id(model), page, pages);
        *out += &format!("- As in [`{}`]({of}): {}.\n", model.header, links.join(", "));
    }
    let mut defaults: Vec<&str> = Vec::new();
    for key in &tables {
        let default = without(key);
        if !defaults.contains(&default) {
            defaults.push(default);
        }
    }
    for default in defaults {
        let those = tables.iter().filter(|key| without(key) == default);
        let links = those.map(|key| {
            let inner = table(key.kind).unwrap_or(section);
            format!("[`{}`]({})", key.name, place(inner, &heading_id(inner), page, pages))
        });
        let links: Vec<String> = links.collect();
        let note = if default.is_empty() { String::new() } else { format!(" (without it, {default})") };
        *out += &format!("- Tables{note}: {}.\n", links.join(", "));
    }
}

/// The words on a table that is absent.
fn without(key: &Key) -> &'static str {
    match key.default {
        Default::Else("none") => "",
        Default::Else(text) => text,
        _ => "",
    }
}

/// The earlier section that shares most keys with `section`, and at least five.
fn model(section: &'static Section, pages: &[Page]) -> Option<&'static Section> {
    let all = pages.iter().flat_map(|page| page.sections.iter().copied());
    let earlier = all.take_while(|other| !std::ptr::eq(*other, section));
    let shared = |other: &Section| {
        section.keys().filter(|key| other.key(key.name).is_some_and(|theirs| same(key, theirs))).count()
    };
    let most = |best: Option<(usize, _)>, other| match (best, shared(other)) {
        // The first of equals lists the keys.
        (Some((count, _)), here) if here <= count => best,
        (_, here) => Some((here, other)),
    };
    earlier.fold(None, most).filter(|(count, _)| *count >= 5).map(|(_, best)| best)
}

fn same(a: &Key, b: &Key) -> bool {
    let default = |key: &Key| format!("{:?}", key.default);
    a.name == b.name && a.says == b.says && takes(a.kind) == takes(b.kind) && default(a) == default(b)
}

fn table(kind: Kind) -> Option<&'static Section> {
    match kind {
        Kind::Table(inner) | Kind::Named(inner) | Kind::List(inner) => Some(inner),
        _ => None,
    }
}

/// The target of a link from `page` to `id` in `section`.
fn place(section: &Section, id: &str, page: &Page, pages: &[Page]) -> String {
    let holds = |page: &&Page| page.sections.iter().any(|other| std::ptr::eq(*other, section));
    match pages.iter().find(holds) {
        Some(other) if !std::ptr::eq(other, page) => format!("{}#{id}", other.file),
        _ => format!("#{id}"),
    }
}

/// The id that renderers of Markdown give to a section's heading.
fn heading_id(section: &Section) -> String {
    let kept = section.header.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c));
    kept.flat_map(char::to_lowercase).collect()
}

/// The id of a key: the section's words and the key's name.
fn key_id(section: &Section, key: &Key) -> String {
    let words = section.header.trim_matches(['[', ']']).split('.').filter(|word| !word.is_empty());
    let words = words.filter(|word| !word.chars().all(|c| c.is_ascii_uppercase() || c == '"'));
    words.chain([key.name]).collect::<Vec<_>>().join("-")
}

fn takes(kind: Kind) -> String {
    match kind {
        Kind::Text | Kind::Line => "string".into(),
        Kind::Truth => "boolean".into(),
        Kind::Word(words) => words.iter().map(|w| format!("`\"{w}\"`")).collect::<Vec<_>>().join(", "),
        Kind::Count { least, most } if most >= 1 << 40 => format!("integer ≥ {least}"),
        Kind::Count { least, most } => format!("{least}…{most}"),
        Kind::Number { least: 0.0, most: 1.0 } => "fraction".into(),
        Kind::Number { least, most } if most > 1e9 => format!("number ≥ {least}"),
        Kind::Number { least, most } => format!("{least}…{most}"),
        Kind::Over { over, most } if most > 1e9 => format!("number > {over}"),
        Kind::Over { over, most } => format!("{over}…{most}, not {over}"),
        Kind::Time { least } if least > 1 => format!("time ≥ {}", Time(least)),
        Kind::Time { .. } => "time".into(),
        Kind::TimeOrNone => "time or `\"none\"`".into(),
        Kind::Rate => "rate".into(),
        Kind::WireRate => "wire-rate".into(),
        Kind::RateOrAll => "rate or `\"all\"`".into(),
        Kind::Bytes { least: 0 | 1, most } if most >= 1 << 30 => "size".into(),
        Kind::Bytes { least, most } if most >= 1 << 40 => format!("size ≥ {least} B"),
        Kind::Bytes { least, most } => format!("size {least}…{most} B"),
        Kind::Limit => "limit".into(),
        Kind::Threshold => "threshold".into(),
        Kind::Spread => "spread".into(),
        Kind::When => "when".into(),
        Kind::Sizes => "distribution".into(),
        Kind::Arrivals => "arrivals".into(),
        Kind::Node => "node".into(),
        Kind::Nodes => "nodes".into(),
        Kind::Match(_) => "list".into(),
        Kind::Medium => "medium".into(),
        Kind::Links => "links".into(),
        Kind::Flows => "flows".into(),
        Kind::Table(_) | Kind::Named(_) | Kind::RawTable => "table".into(),
        Kind::Variants | Kind::Grid => "tables by name".into(),
        Kind::List(_) | Kind::Raw | Kind::All(_) => "array of tables".into(),
    }
}

const TOP: &str = "The top of the file";

/// The page that explains values.
const VALUES_PAGE: &str = "scenario-reference.md";

const VALUES: &str = "\
## Values

After a key, in parentheses: the kind of its value, and its default. A key without a default may be absent. \
`tollway docs link.law` prints the line of a key.

- *time*: `\"250 ms\"`. *rate*: `\"10 Mbps\"`; a *wire-rate* lies between 1 kbps and 100 Tbps. *size*: `\"64 KiB\"`, or bytes as an integer.
- *fraction*: 0 to 1, or a percentage, `\"5 %\"`. *1…64*: a number in this range.
- *limit*: `\"100 packets\"`, `\"64 KiB\"`, `\"2 BDP\"` or `\"unlimited\"`. *threshold*: a fraction of the limit, or packets or bytes.
- *spread*: a time, or `{ first = \"5 ms\", last = \"50 ms\" }`, evenly over the members of a group. *when*: the same, or \
`{ random = \"1 s\", after = \"0 s\" }`, uniform in that span.
- *node*: a node, a group, or a member such as `host.2`. *nodes*, *links*, *flows*: a name, with `*` and `?` for several; *nodes* also \
as an array. *list*: one value, or an array.
- *distribution*: `\"10 kB\"`; `{ exponential = \"30 kB\" }`, the mean; `{ pareto = { mean = \"30 kB\", shape = 1.2 } }`; \
`{ empirical = [[\"1 kB\", 0.5], [\"1 MB\", 1.0]] }`; or `{ file = \"web.txt\" }`, a file of such lines (see [Importing](importing.md)).
- *arrivals*: `{ poisson = 100 }`, a mean number per second, or `{ interval = \"10 ms\" }`.

";

const VARIANTS: &str = r#"## Variants and `--set`

`[variant.NAME]` has dotted paths of keys, with their values in this variant:

```toml
[variant.fifo]
"link.bottleneck.law" = "drop-tail"
"flow.*.law" = "newreno"
```

In a name, `*` matches any letters and `?` matches one: `link.l*.law`. `change.*.at` is a key of every change (changes are numbered from 0). A table replaces only the keys that it has. Each variant is a separate run.

`[grid.AXIS]` tables make a variant for every combination of their points; its name joins the points' names. An axis lists the values of a key, or of several keys with equal values, or it has a table for each point:

```toml
[grid.rate]
set = "link.bottleneck.rate"
to = ["1 Mbps", "2 Mbps"]

[grid.law.red]
"link.bottleneck.law" = "red"

[grid.law.fifo]
"link.bottleneck.law" = "drop-tail"
```

make the variants `1Mbps-red`, `1Mbps-fifo`, `2Mbps-red` and `2Mbps-fifo`. An empty table, `[grid.law.plain]`, sets nothing.

`--set link.bottleneck.rate=20Mbps` does the same on the command line, and overrides the variants' keys. A value that is not TOML is a string.
"#;
