//! An assembler for the few instructions of this crate's programs (RFC 9669).

use std::io;

/// A register. `R0` holds a call's result and `R1` to `R5` its arguments. `R6` to `R9` keep their
/// values over a call. `R10` is the frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// The right-hand operand of a comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) enum With {
    Reg(Reg),
    Imm(i32),
}

/// The condition of a jump, for unsigned numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    Equal = 0x10,
    NotEqual = 0x50,
    Over = 0x20,
    NoMore = 0xb0,
}

/// An arithmetic operation with a constant, on all 64 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Add = 0x00,
    Subtract = 0x10,
    Multiply = 0x20,
    Divide = 0x30,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
}

/// Operation codes of atomic instructions.
const FETCH_ADD: i32 = 0x01;
const COMPARE_AND_SWAP: i32 = 0xf1;

/// A position in a program. Jumps may name it before it is defined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label(usize);

/// A program under construction.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<Instruction>,
    /// By label: the index of its instruction, once defined.
    places: Vec<Option<usize>>,
    /// Jumps: the index of the instruction, and its label.
    jumps: Vec<(usize, Label)>,
}

/// An instruction of eight bytes (RFC 9669 § 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    constant: i32,
}

impl Assembler {
    /// Returns a new label, to be defined by [`Assembler::here`].
    pub(crate) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Defines `label` as the position of the next instruction.
    pub(crate) fn here(&mut self, label: Label) {
        self.places[label.0] = Some(self.code.len());
    }

    /// `to = from`
    pub(crate) fn copy(&mut self, to: Reg, from: Reg) {
        self.push(0xbf, to, from, 0, 0);
    }

    /// `to = value`
    pub(crate) fn set(&mut self, to: Reg, value: i32) {
        self.push(0xb7, to, Reg::R0, 0, value);
    }

    /// `to = to OP value`
    pub(crate) fn op(&mut self, op: Op, to: Reg, value: i32) {
        self.push(0x07 | op as u8, to, Reg::R0, 0, value);
    }

    /// `to = to OP from`
    pub(crate) fn op_with(&mut self, op: Op, to: Reg, from: Reg) {
        self.push(0x0f | op as u8, to, from, 0, 0);
    }

    /// `to = to` with its two lowest bytes in network order, and the other bytes cleared
    pub(crate) fn swap_half(&mut self, to: Reg) {
        self.push(0xdc, to, Reg::R0, 0, 16);
    }

    /// `{ old = *(to + offset); *(to + offset) += with; with = old }`, atomically
    pub(crate) fn fetch_add(&mut self, to: Reg, offset: i16, with: Reg) {
        self.push(0xdb, to, with, offset, FETCH_ADD);
    }

    /// `if (*(to + offset) == R0) *(to + offset) = with`, atomically; `R0` holds the old value
    pub(crate) fn compare_and_swap(&mut self, to: Reg, offset: i16, with: Reg) {
        self.push(0xdb, to, with, offset, COMPARE_AND_SWAP);
    }

    /// `to = frame - below`
    pub(crate) fn frame(&mut self, to: Reg, below: i16) {
        self.copy(to, Reg::R10);
        self.op(Op::Add, to, -i32::from(below));
    }

    /// `to = *(uN *)(from + offset)`
    pub(crate) fn load(&mut self, bytes: u32, to: Reg, from: Reg, offset: i16) {
        self.push(0x61 | width(bytes), to, from, offset, 0);
    }

    /// `*(uN *)(to + offset) = from`
    pub(crate) fn store(&mut self, bytes: u32, to: Reg, offset: i16, from: Reg) {
        self.push(0x63 | width(bytes), to, from, offset, 0);
    }

    /// `*(uN *)(to + offset) = value`
    pub(crate) fn store_value(&mut self, bytes: u32, to: Reg, offset: i16, value: i32) {
        self.push(0x62 | width(bytes), to, Reg::R0, offset, value);
    }

    /// `to = the map`
    pub(crate) fn map(&mut self, to: Reg, descriptor: i32) {
        self.wide(to, 1, descriptor);
    }

    /// `to = &(the only value of the map)`
    pub(crate) fn value_of(&mut self, to: Reg, descriptor: i32) {
        self.wide(to, 2, descriptor);
    }

    /// `if (left WHEN right) goto label`
    pub(crate) fn jump(&mut self, when: When, left: Reg, right: With, label: Label) {
        self.jumps.push((self.code.len(), label));
        match right {
            With::Imm(value) => self.push(0x05 | when as u8, left, Reg::R0, 0, value),
            With::Reg(reg) => self.push(0x0d | when as u8, left, reg, 0, 0),
        }
    }

    /// `goto label`
    pub(crate) fn go(&mut self, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(0x05, Reg::R0, Reg::R0, 0, 0);
    }

    /// `R0 = helper(R1, …)`, with the helper's number in `linux/bpf.h`
    pub(crate) fn call(&mut self, helper: i32) {
        self.push(0x85, Reg::R0, Reg::R0, 0, helper);
    }

    /// `return value`
    pub(crate) fn exit(&mut self, value: i32) {
        self.set(Reg::R0, value);
        self.push(0x95, Reg::R0, Reg::R0, 0, 0);
    }

    /// `R0 = function(R1, …)`, a function of the kernel by its number in BTF
    pub(crate) fn call_kernel(&mut self, function: u32) {
        self.push(0x85, Reg::R0, Reg::R2, 0, function as i32);
    }

    /// Returns the program with the distance of each jump filled in.
    ///
    /// # Errors
    /// A label is not defined, or too far away.
    pub(crate) fn finish(mut self) -> io::Result<Vec<Instruction>> {
        for (at, label) in self.jumps {
            let place =
                self.places[label.0].and_then(|place| i16::try_from(place as i64 - at as i64 - 1).ok());
            self.code[at].offset = place.ok_or_else(|| io::Error::other("a jump leads nowhere"))?;
        }
        Ok(self.code)
    }

    /// Loads a constant of 64 bits, which takes two instructions. `kind` is the meaning of the
    /// first half.
    fn wide(&mut self, to: Reg, kind: u8, descriptor: i32) {
        self.code.push(Instruction {
            code: 0x18,
            registers: pair(to as u8, kind),
            offset: 0,
            constant: descriptor,
        });
        self.push(0, Reg::R0, Reg::R0, 0, 0);
    }

    fn push(&mut self, code: u8, to: Reg, from: Reg, offset: i16, constant: i32) {
        self.code.push(Instruction { code, registers: pair(to as u8, from as u8), offset, constant });
    }
}

/// Two registers in a byte; their order depends on the byte order.
fn pair(to: u8, from: u8) -> u8 {
    if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from }
}

/// The bits of an instruction for the width of its operand, in bytes.
fn width(bytes: u32) -> u8 {
    match bytes {
        1 => 0x10,
        2 => 0x08,
        4 => 0x00,
        _ => 0x18,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_those_of_the_standard() {
        let mut asm = Assembler::default();
        let end = asm.label();
        asm.load(4, Reg::R2, Reg::R6, 84);
        asm.jump(When::Equal, Reg::R2, With::Imm(12), end);
        asm.map(Reg::R1, 5);
        asm.store(8, Reg::R10, -8, Reg::R0);
        asm.jump(When::NoMore, Reg::R0, With::Reg(Reg::R1), end);
        asm.here(end);
        asm.exit(1);
        let code = asm.finish().unwrap();
        let shown: Vec<_> = code.iter().map(|i| (i.code, i.registers, i.offset, i.constant)).collect();
        let [low, high] = if cfg!(target_endian = "little") { [0, 4] } else { [4, 0] };
        let r = |to: u8, from: u8| to << low | from << high;
        assert_eq!(
            shown,
            [
                (0x61, r(2, 6), 84, 0),
                (0x15, r(2, 0), 4, 12),
                (0x18, r(1, 1), 0, 5),
                (0, 0, 0, 0),
                (0x7b, r(10, 0), -8, 0),
                (0xbd, r(0, 1), 0, 0),
                (0xb7, r(0, 0), 0, 1),
                (0x95, r(0, 0), 0, 0),
            ]
        );
    }

    #[test]
    fn a_label_that_is_nowhere_is_an_error() {
        let mut asm = Assembler::default();
        let nowhere = asm.label();
        asm.go(nowhere);
        assert!(asm.finish().is_err());
    }
}
