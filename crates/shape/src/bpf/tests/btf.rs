//! Fuzzing of the BTF reader.

use super::Btf;

/// Parses any bytes as BTF. An instruction must be able to load every field found.
pub(crate) fn look(bytes: &[u8]) {
    let Ok(btf) = Btf::parse(bytes.to_vec()) else { return };
    for path in ["x", "to->a", "in.high", "list[2]", "list[4000000000]", "->", "y.z"] {
        let Ok(field) = btf.field("outer", path) else { continue };
        assert!(field.steps.iter().all(|step| [1, 2, 4, 8].contains(&step.bytes)), "{field:?}");
        assert!(field.bits.is_none_or(|(first, bits)| bits > 0 && first + bits <= 8), "{field:?}");
    }
    let _ = btf.value("WORD");
}
