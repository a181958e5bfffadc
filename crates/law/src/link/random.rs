//! A random generator for laws.

/// PCG-XSH-RR 64/32 (O'Neill 2014): a linear congruential generator with 64 bits of state, whose
/// output is 32 of them, rotated by the top bits. It gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Pcg32(u64);

impl Pcg32 {
    pub(crate) fn new(seed: u64) -> Pcg32 {
        let mut random = Pcg32(seed.wrapping_add(PCG_INCREMENT));
        random.unit();
        random
    }

    /// Uniform on [0, 1), in steps of 2⁻³².
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        let state = self.0;
        self.0 = state.wrapping_mul(PCG_MULTIPLIER).wrapping_add(PCG_INCREMENT);
        let mixed = (((state >> 18) ^ state) >> 27) as u32;
        f64::from(mixed.rotate_right((state >> 59) as u32)) * (1.0 / 4_294_967_296.0)
    }
}

const PCG_MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const PCG_INCREMENT: u64 = 1_442_695_040_888_963_407;

/// `p` clamped to 0 … 1, NaN as 0 (which `clamp` would keep).
pub(super) fn share(p: f64) -> f64 {
    if p > 0.0 { p.min(1.0) } else { 0.0 }
}
