//! The functions of the fuzz targets. Tests of the crates replay the corpus through them.

pub mod codecs;
pub mod inputs;
pub mod overlay;
pub mod packets;
pub mod policies;
pub mod hosts;
pub mod scenarios;
pub mod words;
