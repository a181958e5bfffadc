//! Loads of the kernel's fields.

use super::asm::{Assembler, Op, Reg};
use super::btf::Field;

/// `to` = the field of the structure at `from`
pub(crate) fn field(asm: &mut Assembler, field: &Field, mut from: Reg, to: Reg) {
    for step in &field.steps {
        asm.load(step.bytes, to, from, step.offset);
        from = to;
    }
    if let Some((first, count)) = field.bits {
        asm.op(Op::ShiftRight, to, first as i32);
        asm.op(Op::And, to, (1 << count) - 1);
    }
}
