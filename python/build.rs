//! Has the module take its mathematics from itself (`mathematics`), as the command does, and not from whatever the interpreter has
//! loaded: results are the same to the bit.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    }
}
