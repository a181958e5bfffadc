//! Links the module so that it uses its own mathematical functions (`mathematics`), as the command
//! does, and not those that the interpreter has loaded. Results are then bit-identical.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    }
}
