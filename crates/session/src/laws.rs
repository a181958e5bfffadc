//! Sender laws of sessions, and the laws of their links, by word.

use std::sync::Arc;

use tollway_law::link::{self, AnyLink, DropTail};
use tollway_law::sender::{CheatConfig, FcpConfig, LAWS, SenderConfig, XcpConfig, XcpSender};
use tollway_law::toll::Content;
use tollway_law::{Budget, Rate};

/// The sender law with this word; `None` if sessions cannot use it. `budget` is that of each
/// session under `fcp`.
pub fn law(word: &str, budget: Option<Budget>) -> Option<Arc<dyn SenderConfig>> {
    match word {
        "xcp" => Some(Arc::new(XcpSender { law: XcpConfig::default(), cheat: CheatConfig::default() })),
        "fcp" => {
            let known = FcpConfig::default();
            Some(Arc::new(FcpConfig { budget: budget.unwrap_or(known.budget), ..known }))
        }
        _ => untolled().find(|(known, _)| *known == word).map(|(_, law)| law),
    }
}

/// The laws that depend on no link, by word.
pub fn untolled() -> impl Iterator<Item = (&'static str, Arc<dyn SenderConfig>)> {
    let all = LAWS.iter().map(|entry| (entry.word, (entry.read)(&())));
    all.filter(|(_, config)| config.descriptor().reads.is_none())
}

/// The law of a link at `rate`, for senders under `law`.
pub fn link_law(law: &dyn SenderConfig, rate: Rate) -> AnyLink {
    match law.descriptor().reads {
        Some(Content::Feedback) => link::XcpConfig::default().build(rate),
        Some(Content::Price) => AnyLink::Fcp(Box::new(link::FcpConfig::default().build(rate))),
        Some(Content::Rate) | None => AnyLink::DropTail(DropTail),
    }
}
