//! Names from labels: a scenario's names consist of ASCII letters, digits, `-` and `_`, and are
//! unique.

use std::collections::{HashMap, HashSet};

/// Returns the name for `label`: `Los-Angeles` for `Los Angeles`, `Zuerich` for `Zürich`; empty if
/// no character can be kept.
pub fn word(label: &str) -> String {
    let mut word = String::with_capacity(label.len());
    for c in label.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => word.push(c),
            _ => match plain(c) {
                Some(letters) => word.push_str(letters),
                // One hyphen for a whole gap, none at the start.
                None if !word.is_empty() && !word.ends_with('-') => word.push('-'),
                None => {}
            },
        }
    }
    word.truncate(word.trim_end_matches('-').len());
    word
}

/// Returns `words` with `-2`, `-3` and so on appended to repetitions; no result equals another
/// word.
pub fn unique(words: Vec<String>) -> Vec<String> {
    let taken: HashSet<String> = words.iter().cloned().collect();
    let mut uses: HashMap<String, u32> = HashMap::new();
    let number = |word: String| {
        let uses = uses.entry(word.clone()).or_insert(0);
        *uses += 1;
        if *uses == 1 {
            return word;
        }
        loop {
            let name = format!("{word}-{uses}");
            if !taken.contains(&name) {
                return name;
            }
            *uses += 1;
        }
    };
    words.into_iter().map(number).collect()
}

/// The ASCII form of a Latin letter.
fn plain(c: char) -> Option<&'static str> {
    Some(match c {
        'à' | 'á' | 'â' | 'ã' | 'å' | 'ā' | 'ă' | 'ą' => "a",
        'À' | 'Á' | 'Â' | 'Ã' | 'Å' | 'Ā' | 'Ă' | 'Ą' => "A",
        'ä' | 'æ' => "ae",
        'Ä' | 'Æ' => "Ae",
        'ç' | 'ć' | 'č' => "c",
        'Ç' | 'Ć' | 'Č' => "C",
        'ď' | 'đ' | 'ð' => "d",
        'Ď' | 'Đ' | 'Ð' => "D",
        'è' | 'é' | 'ê' | 'ë' | 'ē' | 'ė' | 'ę' | 'ě' => "e",
        'È' | 'É' | 'Ê' | 'Ë' | 'Ē' | 'Ė' | 'Ę' | 'Ě' => "E",
        'ğ' | 'ģ' => "g",
        'Ğ' | 'Ģ' => "G",
        'ì' | 'í' | 'î' | 'ï' | 'ī' | 'į' | 'ı' => "i",
        'Ì' | 'Í' | 'Î' | 'Ï' | 'Ī' | 'Į' | 'İ' => "I",
        'ķ' => "k",
        'Ķ' => "K",
        'ł' | 'ļ' | 'ľ' => "l",
        'Ł' | 'Ļ' | 'Ľ' => "L",
        'ñ' | 'ń' | 'ņ' | 'ň' => "n",
        'Ñ' | 'Ń' | 'Ņ' | 'Ň' => "N",
        'ò' | 'ó' | 'ô' | 'õ' | 'ø' | 'ō' | 'ő' => "o",
        'Ò' | 'Ó' | 'Ô' | 'Õ' | 'Ø' | 'Ō' | 'Ő' => "O",
        'ö' | 'œ' => "oe",
        'Ö' | 'Œ' => "Oe",
        'ř' => "r",
        'Ř' => "R",
        'ś' | 'š' | 'ş' | 'ș' => "s",
        'Ś' | 'Š' | 'Ş' | 'Ș' => "S",
        'ß' => "ss",
        'ť' | 'ţ' | 'ț' => "t",
        'Ť' | 'Ţ' | 'Ț' => "T",
        'þ' => "th",
        'Þ' => "Th",
        'ù' | 'ú' | 'û' | 'ū' | 'ů' | 'ű' | 'ų' => "u",
        'Ù' | 'Ú' | 'Û' | 'Ū' | 'Ů' | 'Ű' | 'Ų' => "U",
        'ü' => "ue",
        'Ü' => "Ue",
        'ý' | 'ÿ' => "y",
        'Ý' => "Y",
        'ź' | 'ż' | 'ž' => "z",
        'Ź' | 'Ż' | 'Ž' => "Z",
        _ => return None,
    })
}
