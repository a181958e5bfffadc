//! The functions that the libraries under us want of the C library's mathematics: with these, what a solver or an axis makes of
//! them is the same on every machine, and no C library's own is loaded.

/// e^x.
#[expect(unsafe_code, reason = "the C library's function by its name, signature and meaning")]
#[unsafe(no_mangle)]
extern "C" fn exp(x: f64) -> f64 {
    libm::exp(x)
}

/// The natural logarithm.
#[expect(unsafe_code, reason = "the C library's function by its name, signature and meaning")]
#[unsafe(no_mangle)]
extern "C" fn log(x: f64) -> f64 {
    libm::log(x)
}

/// The logarithm to base 2.
#[expect(unsafe_code, reason = "the C library's function by its name, signature and meaning")]
#[unsafe(no_mangle)]
extern "C" fn log2(x: f64) -> f64 {
    libm::log2(x)
}

/// The logarithm to base 2, of a number of 32 bits.
#[expect(unsafe_code, reason = "the C library's function by its name, signature and meaning")]
#[unsafe(no_mangle)]
extern "C" fn log2f(x: f32) -> f32 {
    libm::log2f(x)
}

/// The logarithm to base 10.
#[expect(unsafe_code, reason = "the C library's function by its name, signature and meaning")]
#[unsafe(no_mangle)]
extern "C" fn log10(x: f64) -> f64 {
    libm::log10(x)
}

/// x^y.
#[expect(unsafe_code, reason = "the C library's function by its name, signature and meaning")]
#[unsafe(no_mangle)]
extern "C" fn pow(x: f64, y: f64) -> f64 {
    libm::pow(x, y)
}
