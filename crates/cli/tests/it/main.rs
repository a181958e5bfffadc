//! The command as its users have it: processes, files, terminals, real packets.

#[cfg(unix)]
mod budgets;
mod captures;
mod cli;
mod common;
#[cfg(target_os = "linux")]
mod contain;
#[cfg(target_os = "linux")]
mod exec;
#[cfg(target_os = "linux")]
mod foreign;
#[cfg(target_os = "linux")]
mod host;
#[cfg(target_os = "linux")]
mod hosts;
mod house;
#[cfg(target_os = "linux")]
mod kernels;
mod lab;
#[cfg(target_os = "linux")]
mod overlay;
mod processes;
#[cfg(target_os = "linux")]
mod programs;
mod reproduce;
#[cfg(target_os = "linux")]
mod router;
#[cfg(target_os = "linux")]
mod shape;
#[cfg(target_os = "linux")]
mod signals;
#[cfg(target_os = "linux")]
mod sites;
#[cfg(target_os = "linux")]
mod soak;
#[cfg(target_os = "linux")]
mod switch;
mod tasks;
