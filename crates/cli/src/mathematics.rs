//! The functions of the C library's mathematics that our libraries use. With these, solvers and
//! axes give the same results on every machine, and the C library's own is not loaded.

/// Returns eˣ.
#[expect(unsafe_code, reason = "the C library's function by its name, signature and meaning")]
#[unsafe(no_mangle)]
extern "C" fn exp(x: f64) -> f64 {
    libm::exp(x)
}

/// Returns the natural logarithm.
#[expect(unsafe_code, reason = "the C library's function by its name, signature and meaning")]
#[unsafe(no_mangle)]
extern "C" fn log(x: f64) -> f64 {
    libm::log(x)
}

/// Returns the logarithm to base 2.
#[expect(unsafe_code, reason = "the C library's function by its name, signature and meaning")]
#[unsafe(no_mangle)]
extern "C" fn log2(x: f64) -> f64 {
    libm::log2(x)
}

/// Returns the logarithm to base 2 of a number of 32 bits.
#[expect(unsafe_code, reason = "the C library's function by its name, signature and meaning")]
#[unsafe(no_mangle)]
extern "C" fn log2f(x: f32) -> f32 {
    libm::log2f(x)
}

/// Returns the logarithm to base 10.
#[expect(unsafe_code, reason = "the C library's function by its name, signature and meaning")]
#[unsafe(no_mangle)]
extern "C" fn log10(x: f64) -> f64 {
    libm::log10(x)
}

/// Returns x to the power of y.
#[expect(unsafe_code, reason = "the C library's function by its name, signature and meaning")]
#[unsafe(no_mangle)]
extern "C" fn pow(x: f64, y: f64) -> f64 {
    libm::pow(x, y)
}
