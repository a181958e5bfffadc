//! `tollway overlay`: a site that distributes messages.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use miette::miette;
use tollway_agent::tls::TlsError;
use tollway_overlay::agent::{self, AgentError, Options, Signals};
use tollway_overlay::config::Site;
use tollway_overlay::keys;
use tollway_overlay::status::OVERLAY;
use tollway_overlay::tls::Ends;

use crate::args::{Overlay, OverlayCommand};
use crate::audience::say_status;
use crate::fail::Failure;
use crate::features;
use crate::terminal;

pub(crate) fn overlay(args: &Overlay) -> Result<ExitCode, Failure> {
    match &args.command {
        None => run(args),
        Some(OverlayCommand::Status { json, config, socket }) => {
            status(*json, config.as_deref(), socket.as_deref())
        }
        Some(OverlayCommand::Check { file }) => check(file),
        Some(OverlayCommand::Keys { folder, sites, tenants, hosts }) => {
            let made = keys::make(folder, sites, tenants, hosts).map_err(|error| match error {
                keys::KeysError::Name(_) | keys::KeysError::Exists(_) => Failure::input(miette!("{error}")),
                _ => Failure::run(miette!("{error}")),
            })?;
            for path in made {
                terminal::say(format_args!("{}\n", path.display()));
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn run(args: &Overlay) -> Result<ExitCode, Failure> {
    features::if_not_built(false, args.metrics.is_some(), args.view.is_some())?;
    // Must precede the first thread.
    let signals = Signals::hold();
    let options = Options { socket: args.socket.clone(), metrics: args.metrics, view: args.view };
    let events = args.log.open().map_err(|error| Failure::run(miette!("cannot log: {error}")))?;
    agent::run(&args.config.clone().unwrap_or_default(), &options, &signals, &events)?;
    Ok(ExitCode::SUCCESS)
}

fn status(json: bool, config: Option<&Path>, socket: Option<&Path>) -> Result<ExitCode, Failure> {
    let path = match (socket, config) {
        (Some(socket), _) => socket.to_owned(),
        (None, Some(config)) => agent::default_socket(&Site::load(config)?.rules.site),
        (None, None) => PathBuf::new(),
    };
    let text = agent::ask(&path).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => Failure::run(miette!(
            help = "see whether it is stopped (`T` in `ps`)",
            "the site at `{}` does not answer: {error}",
            path.display()
        )),
        _ => Failure::run(miette!(
            help = "start it with `tollway overlay --config FILE`, or give another user's control socket with \
                `--socket`",
            "no site answers at `{}`: {error}",
            path.display()
        )),
    })?;
    say_status(&text, json, "site", &OVERLAY)
}

fn check(file: &Path) -> Result<ExitCode, Failure> {
    let site = Site::load(file)?;
    Ends::load(&site)?;
    if let Some(warning) = site.readable(file) {
        terminal::tell(format!("warning: {warning}"));
    }
    let names: Vec<&str> = site.rules.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    let links: Vec<&str> = site.links.iter().map(|link| link.site.as_str()).collect();
    let links = if links.is_empty() { "no other site".to_owned() } else { links.join(", ") };
    terminal::say(format_args!(
        "site {} is valid: tenants {}; links to {links}\n",
        site.rules.site,
        names.join(", ")
    ));
    Ok(ExitCode::SUCCESS)
}

impl From<TlsError> for Failure {
    fn from(error: TlsError) -> Failure {
        Failure::input(miette!(help = error.help, "{error}"))
    }
}

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Failure {
        match error {
            AgentError::Config(error) => error.into(),
            AgentError::Keys(error) => error.into(),
            AgentError::Runs { .. } => {
                Failure::input(miette!(help = "stop it, or give this one another `--socket`", "{error}"))
            }
            AgentError::Serve(error) => error.into(),
            AgentError::System { .. } => Failure::run(miette!(
                help = "give addresses of this machine and free ports; `ss -ltnp` lists the programs that use \
                    ports",
                "{error}"
            )),
        }
    }
}
